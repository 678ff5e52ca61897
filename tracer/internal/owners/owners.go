// Package owners looks for who holds the buffers of processes: after a late attach, after a failed
// allocation, at new peaks, at marks, and on request. A search reads a process's memory in the background, and
// its results come as events. Searches decides when one begins.
package owners

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/kernel"
	"ttmem/tracer/owner"
)

const (
	// failurePauseNs is the time from a search after a failed allocation to the next one: a program
	// may fail a thousand times a second.
	failurePauseNs = 5e9
	// searchTime is the last resort against a search that does not end: its own limits are of work.
	searchTime = 10 * time.Minute
	// maxSearches bounds the searches at the same time, and maxSearchesOfUser those of a user's
	// processes.
	maxSearches, maxSearchesOfUser = 4, 2
	// searchBurstNs is how long the processes of a user may be searched because of what the user
	// does. Afterwards it is one part in searchShare of the time.
	searchBurstNs = 20e9
	searchShare   = 20
	// At a new peak a process is searched once it has not grown for settleNs, or has grown for growingNs.
	settleNs, growingNs = 100e6, 1e9
	// peakBurstNs is how long a process may be searched because of new peaks. Afterwards it is one part in
	// peakShare of the time: 1.5 %.
	peakBurstNs = 1e9
	peakShare   = 66
)

// A Process is one whose buffers are searched for.
type Process struct {
	kernel.Program
	*books.Books
	// SinceNs is the time of its ProcessStart.
	SinceNs uint64

	// running is the search that runs, and next the one that follows it; nil: none.
	running, next *Search
	// failedNs is when a search for a failed allocation began.
	failedNs uint64
	// seen are the Peaks at the last look, and searched those at which a search was wanted. The Peaks grew at
	// grewNs, and are beyond searched since newNs; 0: they are not.
	seen, searched [event.NumRegions]uint64
	grewNs, newNs  uint64
	// searchedNs is how long a processor searched the process, less its share of the time up to restedNs.
	searchedNs, restedNs uint64
	// known are hashes of the owners that were reported, by the ids of the buffers. While a search
	// runs, only that reads it.
	known map[uint64]uint64
}

// A Search is one scan of a process for the owners of its buffers.
type Search struct {
	// Over is closed when its results have been handled.
	Over chan struct{}
	user int
	// counts is true if its time counts for the user: they caused it.
	counts bool
	// atPeak is true if only a new peak asks for it.
	atPeak bool
	// late is true if it follows a late attach.
	late bool
	// notBeforeNs and beganNs are when it may begin, and began.
	notBeforeNs, beganNs uint64
	stop                 context.CancelFunc
}

// Options are what searches work with.
type Options struct {
	Closing context.Context // done when tracing ends: nothing waits for searches
	Readers *host.Readers
	// Runs reports whether a program has not ended.
	Runs func(kernel.Program) bool
	Warn func(string)
	// Post gets the result of each search, from another goroutine, for Take.
	Post func(*Result)
	Emit func(event.Event)
}

// Searches are the pending and running searches of all processes. Their methods are for one goroutine.
type Searches struct {
	Options
	// Late counts the searches of late attaches that are not over.
	Late    atomic.Int32
	of      map[*Process]bool // the processes that are searched or will be
	running int
	users   map[int]*user
	over    []overSearch
	// searcher does them, and start begins one. unreadable reports once that a process may not be searched.
	searcher   owner.Searcher
	start      func(*Process, *Search) context.CancelFunc
	unreadable sync.Once
}

// New returns Searches of no process.
func New(o Options) *Searches {
	s := &Searches{Options: o, of: make(map[*Process]bool), users: make(map[int]*user)}
	s.start = s.search
	return s
}

// user counts the searches of a user's processes. spentNs is the time that counts, at atNs.
type user struct {
	running       int
	spentNs, atNs uint64
}

// overSearch is a search whose results are handled with the events up to a time.
type overSearch struct {
	atNs uint64
	*Search
}

// user returns the searches of a user at a time.
func (s *Searches) user(uid int, nowNs uint64) *user {
	u := s.users[uid]
	if u == nil {
		u = &user{atNs: nowNs}
		s.users[uid] = u
	}
	past := (nowNs - min(nowNs, u.atNs)) / searchShare
	u.spentNs, u.atNs = u.spentNs-min(u.spentNs, past), max(u.atNs, nowNs)
	return u
}

// want schedules a search of a process. counts is true if its user caused it. It returns the search
// that will have the answer; nil if the process has no buffers.
func (s *Searches) want(p *Process, counts bool) *Search {
	if len(p.Live) == 0 {
		return nil
	}
	if p.next == nil {
		p.next = &Search{user: p.Sharer, counts: counts, Over: make(chan struct{})}
	}
	p.next.counts, p.next.atPeak = p.next.counts && counts, false
	s.of[p] = true
	return p.next
}

// WantLate schedules the search after a late attach.
func (s *Searches) WantLate(p *Process) {
	if one := s.want(p, false); one != nil && !one.late {
		one.late = true
		s.Late.Add(1)
	}
}

// WantAfterFailure schedules a search of a process in which an allocation failed.
func (s *Searches) WantAfterFailure(p *Process) {
	waits := p.next != nil
	if one := s.want(p, true); one != nil && !waits && p.failedNs != 0 {
		one.notBeforeNs = p.failedNs + failurePauseNs
	}
}

// WantAtPeak schedules a search of a process whose memory has a new peak. Such searches leave half
// of the time that a user may have to failures and requests.
func (s *Searches) WantAtPeak(p *Process, nowNs uint64) {
	if p.Peaks != p.seen {
		p.seen, p.grewNs = p.Peaks, nowNs
	}
	isNew := false
	for region, bytes := range p.Peaks {
		p.searched[region] = min(p.searched[region], bytes) // a device was closed
		isNew = isNew || bytes > p.searched[region]+p.searched[region]/8
	}
	switch {
	case !isNew:
		p.newNs = 0
	case p.newNs == 0:
		p.newNs = nowNs
	}
	past := (nowNs - min(nowNs, p.restedNs)) / peakShare
	p.searchedNs, p.restedNs = p.searchedNs-min(p.searchedNs, past), nowNs
	if !isNew || p.running != nil || p.next != nil || p.searchedNs >= peakBurstNs ||
		nowNs < p.grewNs+settleNs && nowNs < p.newNs+growingNs {
		return
	}
	if one := s.want(p, true); one != nil {
		one.atPeak = true
		p.searched, p.newNs = p.Peaks, 0
	}
}

// WantNow schedules a search that does not wait because of an earlier one. It returns nil if the process
// has no buffers.
func (s *Searches) WantNow(p *Process, counts bool) *Search {
	one := s.want(p, counts)
	if one != nil {
		one.notBeforeNs = 0
	}
	return one
}

// ErrTooOften means that a user asks for more searches than a user may have.
var ErrTooOften = errors.New("they were searched too often: try again in a minute")

// Request is WantNow with a limit for the user, if counts is true.
func (s *Searches) Request(p *Process, counts bool, nowNs uint64) (*Search, error) {
	if counts && s.user(p.Sharer, nowNs).spentNs >= searchBurstNs {
		return nil, ErrTooOften
	}
	return s.WantNow(p, counts), nil
}

// Begin begins those for which there is room.
func (s *Searches) Begin(nowNs uint64) {
	for p := range s.of {
		next := p.next
		if next == nil || p.running != nil || nowNs < next.notBeforeNs || s.running >= maxSearches {
			continue
		}
		u := s.user(next.user, nowNs)
		burst := uint64(searchBurstNs)
		if next.atPeak {
			burst /= 2
		}
		if u.running >= maxSearchesOfUser || next.counts && u.spentNs >= burst {
			continue
		}
		if p.running, p.next = next, nil; next.counts {
			p.failedNs = nowNs
		}
		u.running++
		s.running++
		next.beganNs = nowNs
		next.stop = s.start(p, next)
	}
}

// End ends those of a process that has ended.
func (s *Searches) End(p *Process) {
	for _, one := range [...]*Search{p.running, p.next} {
		if one != nil {
			close(one.Over)
			s.endLate(one)
		}
	}
	if p.running != nil {
		p.running.stop()
	}
	delete(s.of, p)
}

func (s *Searches) endLate(one *Search) {
	if one.late {
		s.Late.Add(-1)
	}
}

// Take reports the result of a search with a time, at most so many owners. It returns how many that
// were, and false if there are more.
func (s *Searches) Take(r *Result, atNs uint64, most int) (n int, done bool) {
	p, one := r.process, r.search
	if s.of[p] && p.running == one { // else it has ended
		n = min(len(r.changed), max(0, most))
		for _, e := range r.changed[:n] {
			if live, ok := p.Live[e.Object]; ok && live.ID == e.BufferID {
				e.TimeNs, e.Count = atNs, p.SinceNs
				s.Emit(e)
			}
		}
		if r.changed = r.changed[n:]; len(r.changed) > 0 {
			return n, false
		}
		p.known, p.running = r.known, nil
		p.searchedNs += r.tookNs
		s.Emit(event.Event{
			Kind: event.Owner, TimeNs: atNs, PID: p.PID, TID: p.PID, BufferID: event.NoBuffer, Message: r.incomplete, Count: p.SinceNs,
		})
		if p.next == nil {
			delete(s.of, p)
		}
		s.endLate(one)
		s.over = append(s.over, overSearch{atNs, one})
	}
	s.running--
	u := s.user(one.user, r.EndedNs)
	u.running--
	if one.counts {
		u.spentNs += r.EndedNs - min(r.EndedNs, one.beganNs)
	}
	maps.DeleteFunc(s.users, func(uid int, u *user) bool {
		return u.running == 0 && s.user(uid, r.EndedNs).spentNs == 0
	})
	return n, true
}

// EndOver ends the searches whose results were released.
func (s *Searches) EndOver(untilNs uint64) {
	s.over = slices.DeleteFunc(s.over, func(o overSearch) bool {
		if o.atNs < untilNs {
			close(o.Over)
		}
		return o.atNs < untilNs
	})
}

// A Result is that of a search.
type Result struct {
	EndedNs uint64
	tookNs  uint64 // of a processor: on a busy host a search waits for one
	process *Process
	search  *Search
	// changed has an event for each owner that is new; one without an owner for a buffer that
	// nobody holds any more.
	changed []event.Event
	known   map[uint64]uint64 // as in Process
	// incomplete is why not all owners were found; "" if the search was complete.
	incomplete string
}

// search looks for who holds the live buffers of a process in the background.
func (s *Searches) search(p *Process, one *Search) (stop context.CancelFunc) {
	ctx, stop := context.WithTimeoutCause(s.Closing, searchTime, fmt.Errorf("stopped after %.0f s", searchTime.Seconds()))
	live, known := maps.Clone(p.Live), p.known
	go func() {
		defer stop()
		var cost owner.Cost
		r, err := findOwners(p.PID, live, known, func(ids map[uint64]uint64) (holders map[uint64]owner.Holder, err error) {
			holders, cost, err = s.searcher.Holders(ctx, s.Readers, p.PID, ids)
			return holders, err
		})
		if err != nil && !errors.Is(err, owner.ErrNoPython) {
			r.incomplete = err.Error()
		}
		if errors.Is(err, fs.ErrPermission) && s.Closing.Err() == nil && s.Runs(p.Program) {
			s.unreadable.Do(func() {
				s.Warn(fmt.Sprintf("cannot read the memory of process %d, and perhaps of others, so their buffers have no owners: %v", p.PID, err))
			})
		}
		r.EndedNs, r.process, r.search = host.Now(), p, one
		if r.tookNs = uint64(cost.CPU); err != nil {
			r.tookNs = r.EndedNs - one.beganNs
		}
		s.Post(&r)
	}()
	return stop
}
