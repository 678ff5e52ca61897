package owners

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/kernel"
	"ttmem/tracer/owner"
)

// begunSearch is a search that has begun. live has the ids of the Buffers.
type begunSearch struct {
	p    *Process
	live []uint64
	*Search
	stopped *bool
}

// isOver reports whether who waits for a search has the answer.
func (b *begunSearch) isOver() bool {
	select {
	case <-b.Over:
		return true
	default:
		return false
	}
}

// searched are Searches, those that have begun, the processes by id, and the events.
type searched struct {
	*Searches
	begun     []begunSearch
	processes map[int]*Process
	events    []event.Event
}

func newSearched() *searched {
	d := &searched{processes: make(map[int]*Process)}
	d.Searches = New(Options{Emit: func(e event.Event) { d.events = append(d.events, e) }})
	d.start = func(p *Process, s *Search) context.CancelFunc {
		b := begunSearch{p: p, Search: s, stopped: new(bool)}
		for _, l := range p.Live {
			b.live = append(b.live, l.ID)
		}
		d.begun = append(d.begun, b)
		return func() { *b.stopped = true }
	}
	return d
}

// allocate makes a process with one more buffer for each of the given ids.
func (d *searched) allocate(pid int, ids ...uint64) *Process {
	p := d.processes[pid]
	if p == nil {
		p = &Process{Program: kernel.Program{PID: pid}, Books: books.New(nil, nil, nil)}
		d.processes[pid] = p
	}
	for _, id := range ids {
		p.Live[0x1000+id] = books.Buffer{ID: id}
	}
	return p
}

// end ends a search at a time: the buffers with these ids have these owners.
func (d *searched) end(t *testing.T, b *begunSearch, ns uint64, paths map[uint64]string) {
	t.Helper()
	live := make(map[uint64]books.Buffer)
	for _, id := range b.live {
		live[0x1000+id] = books.Buffer{ID: id}
	}
	r, err := findOwners(b.p.PID, live, b.p.known, func(ids map[uint64]uint64) (map[uint64]owner.Holder, error) {
		holders := make(map[uint64]owner.Holder)
		for object, id := range ids {
			if path, ok := paths[id]; ok {
				holders[object] = owner.Holder{Path: path}
			}
		}
		return holders, nil
	})
	qt.Assert(t, qt.IsNil(err))
	r.EndedNs, r.process, r.search, r.tookNs = ns, b.p, b.Search, ns-b.beganNs
	_, done := d.Take(&r, ns, 1000)
	qt.Assert(t, qt.IsTrue(done))
}

// reported releases the events, and returns the owners: "1=model.wq".
func (d *searched) reported() (list []string) {
	for _, e := range d.events {
		if e.BufferID != event.NoBuffer {
			list = append(list, fmt.Sprintf("%d=%s", e.BufferID, e.Cause))
		}
	}
	d.events = nil
	d.EndOver(math.MaxUint64)
	return list
}

// TestASecondSearchReportsWhatChanged: an owner that is known is not reported again, and a buffer
// that nobody holds any more has no owner.
func TestASecondSearchReportsWhatChanged(t *testing.T) {
	d := newSearched()
	d.allocate(7, 1, 2, 3, 4)
	for i, step := range []struct {
		paths map[uint64]string
		want  []string
	}{
		{map[uint64]string{1: "a", 2: "b", 3: "c"}, []string{"1=a", "2=b", "3=c"}},
		{map[uint64]string{1: "a", 2: "b", 3: "c"}, nil},
		{map[uint64]string{1: "a", 2: "x", 4: "d"}, []string{"2=x", "3=", "4=d"}},
		{map[uint64]string{1: "a", 2: "x", 4: "d"}, nil},
		{map[uint64]string{1: "a", 2: "x", 3: "c", 4: "d"}, []string{"3=c"}},
	} {
		qt.Assert(t, qt.IsNotNil(d.want(d.processes[7], false)))
		d.Begin(10)
		qt.Assert(t, qt.HasLen(d.begun, i+1))
		one := &d.begun[i]
		d.end(t, one, 20, step.paths)
		qt.Check(t, qt.IsFalse(one.isOver())) // its events were not released yet
		qt.Check(t, qt.DeepEquals(d.reported(), step.want))
		qt.Check(t, qt.IsTrue(one.isOver()))
		qt.Check(t, qt.HasLen(d.of, 0))
	}
}

// TestNewPeaks: a process is searched once its memory has grown by more than an eighth and does not grow any
// more, or has grown for a second; also after a device was closed.
func TestNewPeaks(t *testing.T) {
	const ms = 1_000_000
	d := newSearched()
	p := d.allocate(7, 1)
	ns := uint64(1000 * ms)
	searched := func(afterMs uint64, dram, l1 uint64) bool {
		t.Helper()
		ns += afterMs * ms
		p.Peaks[event.DRAM], p.Peaks[event.L1] = dram, l1
		before := len(d.begun)
		d.WantAtPeak(p, ns)
		d.Begin(ns)
		if len(d.begun) == before {
			return false
		}
		d.end(t, &d.begun[before], ns+10*ms, nil)
		return true
	}
	for _, step := range []struct {
		afterMs, dram, l1 uint64
		want              bool
	}{
		{0, 0, 0, false},
		{0, 1000, 0, false},
		{99, 1000, 0, false},
		{1, 1000, 0, true},
		{500, 1000, 0, false},
		{0, 1125, 0, false}, // an eighth more
		{500, 1125, 0, false},
		{0, 1126, 0, false},
		{100, 1126, 0, true},
		{0, 1126, 7, false}, // in another region
		{100, 1126, 7, true},
		{0, 2000, 7, false},
		{90, 2100, 7, false}, // it grows all the time
		{90, 2200, 7, false},
		{90, 2300, 7, false},
		{90, 2400, 7, false},
		{90, 2500, 7, false},
		{90, 2600, 7, false},
		{90, 2700, 7, false},
		{90, 2800, 7, false},
		{90, 2900, 7, false},
		{90, 3000, 7, false},
		{90, 3100, 7, false},
		{90, 3200, 7, true}, // for a second
		{500, 100, 0, false},
		{500, 100, 0, false}, // the device was closed
		{0, 200, 0, false},
		{100, 200, 0, true},
	} {
		qt.Check(t, qt.Equals(searched(step.afterMs, step.dram, step.l1), step.want), qt.Commentf("%+v at %d ms", step, ns/ms))
	}
}

// TestSearchesAtPeaksTakeAShare: a process that reaches new peaks all the time is searched for a second, and
// then for 1.5 % of the time.
func TestSearchesAtPeaksTakeAShare(t *testing.T) {
	const second = 1_000_000_000
	d := newSearched()
	p := d.allocate(7, 1)
	p.Peaks[event.DRAM] = 1
	spent := uint64(0)
	for ns := uint64(second); ns < 1000*second; ns += second / 10 {
		p.Peaks[event.DRAM] += 1 + p.Peaks[event.DRAM]/1000
		d.WantAtPeak(p, ns)
		before := len(d.begun)
		if d.Begin(ns); len(d.begun) > before {
			d.end(t, &d.begun[before], ns+second/4, nil)
			spent += second / 4
		}
	}
	qt.Check(t, qt.IsTrue(spent > 12*second && spent < 17*second), qt.Commentf("%.1f s of 1000", float64(spent)/second))
}

// TestOneSearchMaySeeNothing: what the first search does not find is searched a second time before it
// counts as not held, and keeps its owner if a search could not be completed.
func TestOneSearchMaySeeNothing(t *testing.T) {
	live := map[uint64]books.Buffer{0x10: {ID: 1}, 0x20: {ID: 2}}
	known := map[uint64]uint64{1: 11, 2: 22, 3: 33} // the third was freed
	incomplete := errors.New("too much")
	for name, c := range map[string]struct {
		second  map[uint64]owner.Holder
		errs    [2]error
		changed []string
		known   int
	}{
		"moved":             {map[uint64]owner.Holder{0x20: {Path: "b"}}, [2]error{}, []string{"1=a", "2=b"}, 2},
		"gone":              {nil, [2]error{}, []string{"1=a", "2="}, 1},
		"incomplete":        {nil, [2]error{incomplete}, []string{"1=a"}, 2},
		"incomplete second": {nil, [2]error{nil, incomplete}, []string{"1=a"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			r, err := findOwners(7, live, known, func(ids map[uint64]uint64) (map[uint64]owner.Holder, error) {
				calls++
				if calls == 1 {
					return map[uint64]owner.Holder{0x10: {Path: "a"}}, c.errs[0]
				}
				qt.Check(t, qt.DeepEquals(ids, map[uint64]uint64{0x20: 2}))
				return c.second, c.errs[1]
			})
			qt.Check(t, qt.Equals(err, cmp.Or(c.errs[0], c.errs[1])))
			var changed []string
			for _, e := range r.changed {
				changed = append(changed, fmt.Sprintf("%d=%s", e.BufferID, e.Cause))
			}
			qt.Check(t, qt.DeepEquals(changed, c.changed))
			qt.Check(t, qt.HasLen(r.known, c.known))
		})
	}
}

// TestOwnersOfBuffersThatEnded: a Buffer that was freed, also if another has its address by now, and
// a process that ended, also if another has its id, get no owner.
func TestOwnersOfBuffersThatEnded(t *testing.T) {
	d := newSearched()
	d.allocate(7, 1, 2, 3)
	d.want(d.processes[7], false)
	d.Begin(10)
	delete(d.processes[7].Live, 0x1001)
	d.processes[7].Live[0x1002] = books.Buffer{ID: 20}
	d.end(t, &d.begun[0], 20, map[uint64]string{1: "a", 2: "b", 3: "c"})
	qt.Check(t, qt.DeepEquals(d.reported(), []string{"3=c"}))

	d.want(d.processes[7], false)
	d.Begin(30)
	next := d.want(d.processes[7], false)
	one := &d.begun[1]
	d.End(d.processes[7]) // an exec
	delete(d.processes, 7)
	qt.Check(t, qt.IsTrue(*one.stopped))
	qt.Check(t, qt.IsTrue(one.isOver()))
	<-next.Over
	d.allocate(7, 3)
	d.end(t, one, 40, map[uint64]string{3: "c"})
	qt.Check(t, qt.HasLen(d.reported(), 0))
	qt.Check(t, qt.Equals(d.running, 0))
	qt.Check(t, qt.HasLen(d.of, 0))
}

// TestSearchesShareTheNext: a process is searched once at a time, and what is asked meanwhile gets one
// more search.
func TestSearchesShareTheNext(t *testing.T) {
	d := newSearched()
	p := d.allocate(7, 1)
	for range 100 {
		d.WantNow(p, false)
		d.Begin(10)
	}
	qt.Assert(t, qt.HasLen(d.begun, 1))
	d.end(t, &d.begun[0], 20, nil)
	for range 3 {
		d.Begin(20)
	}
	qt.Check(t, qt.HasLen(d.begun, 2))
	d.end(t, &d.begun[1], 30, nil)
	d.Begin(40)
	qt.Check(t, qt.HasLen(d.begun, 2))
}

// TestAThousandFailuresASecond cost a search every few seconds, and in the end a small share of the
// time.
func TestAThousandFailuresASecond(t *testing.T) {
	const second, took = 1e9, 4 * 1e9
	d := newSearched()
	d.allocate(7, 1)
	ended := 0
	for ns := uint64(0); ns < 1000*second; ns += second / 1000 {
		d.WantAfterFailure(d.processes[7])
		d.Begin(ns + 1)
		if ended < len(d.begun) && ns >= d.begun[ended].beganNs+took {
			d.end(t, &d.begun[ended], ns, nil)
			ended++
		}
		switch ns {
		case second:
			qt.Check(t, qt.HasLen(d.begun, 1))
		case 6 * second:
			qt.Check(t, qt.HasLen(d.begun, 2))
		}
	}
	spent := float64(len(d.begun)) * took
	qt.Check(t, qt.IsTrue(spent > 1000*second/searchShare), qt.Commentf("%d searches", len(d.begun)))
	qt.Check(t, qt.IsTrue(spent < 1000*second/searchShare+2*searchBurstNs), qt.Commentf("%d searches", len(d.begun)))
	for ended < len(d.begun) {
		d.end(t, &d.begun[ended], 1000*second, nil)
		ended++
	}
	// The user has to wait, and root does not.
	d.user(d.processes[7].Sharer, 1000*second).spentNs = searchBurstNs
	wanted, err := d.Request(d.processes[7], true, 1000*second)
	qt.Check(t, qt.ErrorIs(err, ErrTooOften))
	qt.Check(t, qt.IsNil(wanted))
	wanted, err = d.Request(d.processes[7], false, 1000*second)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsNotNil(wanted))
	d.Begin(1000 * second)
	qt.Check(t, qt.HasLen(d.begun, ended+1))
}

// TestSearchesAreBounded: in number, and for each user.
func TestSearchesAreBounded(t *testing.T) {
	d := newSearched()
	for pid := 10; pid < 20; pid++ {
		d.allocate(pid, 1)
		d.processes[pid].Sharer = pid / 5 // five of each user
		d.want(d.processes[pid], true)
	}
	d.Begin(1)
	users := make(map[int]int)
	for _, b := range d.begun {
		users[b.user]++
	}
	qt.Check(t, qt.DeepEquals(users, map[int]int{2: maxSearchesOfUser, 3: maxSearchesOfUser}))
	qt.Check(t, qt.Equals(d.running, maxSearches))
	for n := 0; n < len(d.begun); n++ {
		d.end(t, &d.begun[n], 1, nil)
		d.Begin(1)
	}
	qt.Check(t, qt.HasLen(d.begun, 10))
	qt.Check(t, qt.HasLen(d.users, 0)) // nothing was spent
}

// TestOnlyLateSearchesAreAwaited: a command that waits for the owners of a program does not wait for
// searches after failures, of which there may be ever more.
func TestOnlyLateSearchesAreAwaited(t *testing.T) {
	d := newSearched()
	d.allocate(7, 1)
	d.WantLate(d.processes[7])
	d.WantAfterFailure(d.processes[7])
	d.Begin(1)
	d.WantAfterFailure(d.processes[7])
	qt.Check(t, qt.Equals(d.Late.Load(), 1))
	d.end(t, &d.begun[0], 2, nil)
	qt.Check(t, qt.IsNotNil(d.processes[7].next))
	qt.Check(t, qt.Equals(d.Late.Load(), 0))

	d.WantLate(d.processes[7]) // and one of a process that ends
	qt.Check(t, qt.Equals(d.Late.Load(), 1))
	d.End(d.processes[7])
	qt.Check(t, qt.Equals(d.Late.Load(), 0))
}

// TestOwnersAreReportedInParts, so that other events do not wait.
func TestOwnersAreReportedInParts(t *testing.T) {
	d := newSearched()
	p := d.allocate(7)
	r := &Result{EndedNs: 2, process: p}
	for id := range uint64(150) {
		p.Live[id] = books.Buffer{ID: id}
		r.changed = append(r.changed, event.Event{Kind: event.Owner, PID: 7, Object: id, BufferID: id, Cause: "x"})
	}
	d.want(p, false)
	d.Begin(1)
	r.search = d.begun[0].Search
	for _, part := range []struct{ most, want int }{{100, 100}, {0, 0}, {-5, 0}, {60, 50}} {
		n, done := d.Take(r, 2, part.most)
		qt.Check(t, qt.Equals(n, part.want))
		qt.Check(t, qt.Equals(done, part.most == 60))
		qt.Check(t, qt.HasLen(d.reported(), part.want))
	}
}

// BenchmarkBeginSearch is what the beginning of a search costs the events: a copy of the live buffers.
func BenchmarkBeginSearch(b *testing.B) {
	d := newSearched()
	p := d.allocate(7)
	for id := range uint64(1 << 20) {
		p.Live[id*64] = books.Buffer{ID: id}
	}
	d.start = func(p *Process, _ *Search) context.CancelFunc {
		_ = maps.Clone(p.Live)
		return func() {}
	}
	for b.Loop() {
		s := d.want(p, false)
		d.Begin(1)
		d.Take(&Result{EndedNs: 2, process: p, search: s}, 2, 0)
	}
}

// TestPeaksLeaveTimeForRequests: the searches at the peaks of many processes do not keep their user from asking for one.
func TestPeaksLeaveTimeForRequests(t *testing.T) {
	const second = 1_000_000_000
	d := newSearched()
	ns := uint64(second)
	for pid := range 40 { // each may take a second
		p := d.allocate(pid+1, 1)
		p.Sharer, p.Peaks[event.DRAM] = 1000, 1
		d.WantAtPeak(p, ns)
	}
	searches := 0
	for range 100 {
		ns += second / 10
		for _, p := range d.processes {
			d.WantAtPeak(p, ns)
		}
		for before := len(d.begun); ; before++ {
			d.Begin(ns)
			if len(d.begun) == before {
				break
			}
			d.end(t, &d.begun[before], ns+second, nil)
			searches++
		}
	}
	qt.Check(t, qt.IsTrue(searches >= 10 && searches < 15), qt.Commentf("%d", searches))
	_, err := d.Request(d.processes[1], true, ns)
	qt.Check(t, qt.IsNil(err))
}
