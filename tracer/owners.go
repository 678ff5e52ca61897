package tracer

// This file looks for who holds the buffers of processes: after a late attach, after a failed
// allocation, at marks, and on request. A search reads a process's memory in the background, and
// its results come as events. The decoder decides when a search begins.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ttmem/tracer/books"
	"ttmem/tracer/event"
	"ttmem/tracer/heap/owner"
	"ttmem/tracer/host"
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
)

// owners are the searches of one process.
type owners struct {
	// running is the search that runs, and next the one that follows it; nil: none.
	running, next *search
	// failedNs is when a search for a failed allocation began.
	failedNs uint64
	// known are hashes of the owners that were reported, by the ids of the buffers. While a search
	// runs, only that reads it.
	known map[uint64]uint64
}

// A search is one scan of a process for the owners of its buffers.
type search struct {
	user int
	// counts is true if its time counts for the user: they caused it.
	counts bool
	// late is true if it follows a late attach.
	late bool
	// notBeforeNs and beganNs are when it may begin, and began.
	notBeforeNs, beganNs uint64
	// over is closed when its results have been handled.
	over chan struct{}
	stop context.CancelFunc
}

// searches holds the pending and running searches of all processes.
type searches struct {
	of      map[*process]bool // the processes that are searched or will be
	late    atomic.Int32      // those of late attaches that are not over
	running int
	users   map[int]*searchUser
	over    []overSearch
	// searcher does them. unreadable reports once that a process may not be searched.
	searcher   owner.Searcher
	unreadable sync.Once
}

// searchUser counts the searches of a user's processes. spentNs is the time that counts, at atNs.
type searchUser struct {
	running       int
	spentNs, atNs uint64
}

// overSearch is a search whose results are handled with the events up to a time.
type overSearch struct {
	atNs uint64
	*search
}

func newSearches() searches {
	return searches{of: make(map[*process]bool), users: make(map[int]*searchUser)}
}

// user returns the searches of a user at a time.
func (s *searches) user(uid int, nowNs uint64) *searchUser {
	u := s.users[uid]
	if u == nil {
		u = &searchUser{atNs: nowNs}
		s.users[uid] = u
	}
	past := (nowNs - min(nowNs, u.atNs)) / searchShare
	u.spentNs, u.atNs = u.spentNs-min(u.spentNs, past), max(u.atNs, nowNs)
	return u
}

// want schedules a search of a process. counts is true if its user caused it. It returns the search
// that will have the answer; nil if the process has no buffers.
func (d *decoder) want(p *process, counts bool) *search {
	if !p.started || len(p.Live) == 0 {
		return nil
	}
	next := p.owners.next
	if next == nil {
		next = &search{user: host.Sharer(p.user, p.PID), counts: counts, over: make(chan struct{})}
		p.owners.next = next
	}
	next.counts = next.counts && counts
	d.searches.of[p] = true
	return next
}

// wantLate schedules the search after a late attach.
func (d *decoder) wantLate(p *process) {
	if s := d.want(p, false); s != nil && !s.late {
		s.late = true
		d.searches.late.Add(1)
	}
}

// wantAfterFailure schedules a search of a process in which an allocation failed.
func (d *decoder) wantAfterFailure(p *process) {
	waits := p.owners.next != nil
	if s := d.want(p, true); s != nil && !waits && p.owners.failedNs != 0 {
		s.notBeforeNs = p.owners.failedNs + failurePauseNs
	}
}

// wantAtMark schedules the searches that a mark asks for: of the process whose call is the mark, or
// of all if that is nil.
func (d *decoder) wantAtMark(p *process) {
	switch {
	case !d.OwnersAtMarks:
	case p != nil:
		d.wantNow(p, false)
	default:
		for _, p := range d.processes {
			d.wantNow(p, false)
		}
	}
}

// wantNow is want of a search that does not wait because of an earlier one.
func (d *decoder) wantNow(p *process, counts bool) *search {
	s := d.want(p, counts)
	if s != nil {
		s.notBeforeNs = 0
	}
	return s
}

// beginSearches begins those for which there is room.
func (d *decoder) beginSearches(nowNs uint64) {
	for p := range d.searches.of {
		next := p.owners.next
		if next == nil || p.owners.running != nil || nowNs < next.notBeforeNs || d.searches.running >= maxSearches {
			continue
		}
		u := d.searches.user(next.user, nowNs)
		if u.running >= maxSearchesOfUser || next.counts && u.spentNs >= searchBurstNs {
			continue
		}
		if p.owners.running, p.owners.next = next, nil; next.counts {
			p.owners.failedNs = nowNs
		}
		u.running++
		d.searches.running++
		next.beganNs = nowNs
		next.stop = d.search(p, next)
	}
}

// endSearches ends those of a process that has ended.
func (d *decoder) endSearches(p *process) {
	for _, s := range [...]*search{p.owners.running, p.owners.next} {
		if s != nil {
			close(s.over)
			d.searches.endLate(s)
		}
	}
	if s := p.owners.running; s != nil {
		s.stop()
	}
	delete(d.searches.of, p)
}

func (s *searches) endLate(one *search) {
	if one.late {
		s.late.Add(-1)
	}
}

// takeOwners reports the result of a search that ended at a time. It returns false if the rest has to
// wait, because maxTaken were reported.
func (d *decoder) takeOwners(p *process, s *search, r *ownersFound, endedNs uint64) bool {
	if d.searches.of[p] && p.owners.running == s { // else it has ended
		n := min(len(r.changed), max(0, maxTaken-d.taken))
		d.taken += n
		atNs := max(endedNs, d.newest, d.queue.released)
		d.reportOwners(p, r.changed[:n], atNs)
		if r.changed = r.changed[n:]; len(r.changed) > 0 {
			return false
		}
		p.owners.known, p.owners.running = r.known, nil
		d.emit(event.Event{
			Kind: event.Owner, TimeNs: atNs, PID: p.PID, TID: p.PID, BufferID: event.NoBuffer, Message: r.incomplete, Count: p.sinceNs,
		})
		if p.owners.next == nil {
			delete(d.searches.of, p)
		}
		d.searches.endLate(s)
		d.searches.over = append(d.searches.over, overSearch{atNs, s})
	}
	d.searches.running--
	u := d.searches.user(s.user, endedNs)
	u.running--
	if s.counts {
		u.spentNs += endedNs - min(endedNs, s.beganNs)
	}
	maps.DeleteFunc(d.searches.users, func(uid int, u *searchUser) bool {
		return u.running == 0 && d.searches.user(uid, endedNs).spentNs == 0
	})
	return true
}

// reportOwners reports the owners of buffers that are still live.
func (d *decoder) reportOwners(p *process, list []event.Event, atNs uint64) {
	for _, e := range list {
		if live, ok := p.Live[e.Object]; ok && live.ID == e.BufferID {
			e.TimeNs, e.Count = atNs, p.sinceNs
			d.emit(e)
		}
	}
}

// endOver ends the searches whose results were released.
func (s *searches) endOver(untilNs uint64) {
	s.over = slices.DeleteFunc(s.over, func(o overSearch) bool {
		if o.atNs < untilNs {
			close(o.search.over)
		}
		return o.atNs < untilNs
	})
}

// ownersFound is the result of a search.
type ownersFound struct {
	// changed has an event for each owner that is new; one without an owner for a buffer that
	// nobody holds any more.
	changed []event.Event
	known   map[uint64]uint64 // as in owners
	// incomplete is why not all owners were found; "" if the search was complete.
	incomplete string
}

// searchOwners looks for who holds the live buffers of a process in the background. Close does not wait
// for it.
func (d *decoder) searchOwners(p *process, s *search) (stop context.CancelFunc) {
	ctx, stop := context.WithTimeoutCause(d.closing, searchTime, fmt.Errorf("stopped after %.0f s", searchTime.Seconds()))
	program, live, known := p.Program, maps.Clone(p.Live), p.owners.known
	go func() {
		defer stop()
		r, err := findOwners(program.PID, live, known, func(ids map[uint64]uint64) (map[uint64]owner.Holder, error) {
			holders, _, err := d.searches.searcher.Holders(ctx, d.reads.readers, program.PID, ids)
			return holders, err
		})
		if err != nil && !errors.Is(err, owner.ErrNoPython) {
			r.incomplete = err.Error()
		}
		if errors.Is(err, fs.ErrPermission) && d.closing.Err() == nil && d.kernel.Runs(program) {
			d.searches.unreadable.Do(func() {
				d.warn(fmt.Sprintf("the memory of process %d, and perhaps of others, cannot be read: owners of buffers are not found: %v", program.PID, err))
			})
		}
		endedNs := host.Now()
		d.inbox.add(result{atNs: endedNs, report: func(d *decoder) bool { return d.takeOwners(p, s, &r, endedNs) }})
	}()
	return stop
}

var ownerSeed = maphash.MakeSeed()

// findOwners finds the owners of live buffers, and those that changed: known are as in owners. find
// searches a process for the Buffers with these addresses and ids. An error means that not all was
// found.
func findOwners(pid int, live map[uint64]books.Buffer, known map[uint64]uint64, find func(ids map[uint64]uint64) (map[uint64]owner.Holder, error)) (r ownersFound, err error) {
	ids, lost := make(map[uint64]uint64, len(live)), make(map[uint64]uint64)
	for object, b := range live {
		ids[object] = b.ID
	}
	r.known = make(map[uint64]uint64)
	report := func(object, id uint64, path, tensor string) {
		r.changed = append(r.changed, event.Event{
			Kind: event.Owner, PID: pid, TID: pid, BufferID: id, Object: object, Cause: path, Message: tensor,
		})
	}
	take := func(holders map[uint64]owner.Holder) {
		for object, h := range holders {
			id, path, tensor := ids[object], h.Path, h.Tensor
			if path == "" {
				continue // would say that nobody holds it
			}
			hash := maphash.Comparable(ownerSeed, [2]string{path, tensor})
			if before, ok := known[id]; !ok || before != hash {
				report(object, id, path, tensor)
			}
			r.known[id] = hash
		}
	}
	missing := func() map[uint64]uint64 {
		clear(lost)
		for object, id := range ids {
			if _, found := r.known[id]; !found {
				if _, before := known[id]; before {
					lost[object] = id
				}
			}
		}
		return lost
	}
	if len(ids) == 0 {
		return r, nil // all were freed
	}
	holders, err := find(ids)
	take(holders)
	// A program that moves an object can hide it from one search: only a second one says that nobody
	// holds it.
	if len(missing()) > 0 && err == nil {
		holders, err = find(lost)
		take(holders)
	}
	for object, id := range missing() {
		if err != nil {
			r.known[id] = known[id]
		} else {
			report(object, id, "", "")
		}
	}
	slices.SortFunc(r.changed, func(a, b event.Event) int { return cmp.Compare(a.BufferID, b.BufferID) })
	return r, err
}

// errTooOften means that a user asks for more searches than a user may have.
var errTooOften = errors.New("they were looked for too often: try again in a minute")

// FindOwners looks for who holds the buffers of processes, or of all that are traced if there are
// none. It returns when Run has handled what was found, and earlier if the context is done. counts is
// true if the users of the processes asked for it: their searches take a limited share of the time.
func (t *Tracer) FindOwners(ctx context.Context, pids []int, counts bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(t.closing, stop)()
	wanted := make(chan wantedSearches, 1)
	t.inbox.add(result{atNs: host.Now(), report: func(d *decoder) bool { // with the buffers that are allocated by now
		wanted <- d.request(pids, counts, host.Now())
		return true
	}})
	var w wantedSearches
	select {
	case w = <-wanted:
	case <-ctx.Done():
	}
	for _, s := range w.list {
		select {
		case <-s.over:
		case <-ctx.Done():
		}
	}
	return cmp.Or(w.err, ctx.Err())
}

// wantedSearches are those that a request waits for. err says why there are not all.
type wantedSearches struct {
	list []*search
	err  error
}

// request schedules searches of processes, or of all if there are none, as FindOwners.
func (d *decoder) request(pids []int, counts bool, nowNs uint64) (w wantedSearches) {
	if len(pids) == 0 {
		pids = slices.Collect(maps.Keys(d.processes))
	}
	for _, pid := range pids {
		p := d.processes[pid]
		if p == nil {
			continue
		}
		if counts && d.searches.user(host.Sharer(p.user, pid), nowNs).spentNs >= searchBurstNs {
			w.err = errTooOften
		} else if s := d.wantNow(p, counts); s != nil {
			w.list = append(w.list, s)
		}
	}
	return w
}

// Searching reports whether searches after late attaches are not over yet. It leaves out others,
// which a program that fails again and again causes without end.
func (t *Tracer) Searching() bool { return t.decoder.searches.late.Load() > 0 }
