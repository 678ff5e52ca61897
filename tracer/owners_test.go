package tracer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/books"
	"ttmem/tracer/event"
	"ttmem/tracer/heap/owner"
)

// begunSearch is a search that has begun. live has the ids of the Buffers.
type begunSearch struct {
	p    *process
	live []uint64
	*search
	stopped *bool
}

// isOver reports whether who waits for a search has the answer.
func (b *begunSearch) isOver() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

// newSearched returns a decoder, the searches that it has begun, and a function that makes a process
// with one buffer for each of the given ids.
func newSearched() (d *decoder, begun *[]begunSearch, allocate func(pid int, ids ...uint64)) {
	d = newTestDecoder()
	begun = new([]begunSearch)
	d.search = func(p *process, s *search) context.CancelFunc {
		b := begunSearch{p: p, search: s, stopped: new(bool)}
		for _, l := range p.Live {
			b.live = append(b.live, l.ID)
		}
		*begun = append(*begun, b)
		return func() { *b.stopped = true }
	}
	return d, begun, func(pid int, ids ...uint64) {
		for _, id := range ids {
			r := bufferRecord(2, 0x1000+id, id)
			r.H.Tgid, r.H.Tid = uint32(pid), uint32(pid)
			d.decode(raw(r))
		}
	}
}

// end ends a search at a time: the buffers with these ids have these owners.
func (b *begunSearch) end(t *testing.T, d *decoder, ns uint64, paths map[uint64]string) {
	t.Helper()
	live := make(map[uint64]books.Buffer)
	for _, id := range b.live {
		live[0x1000+id] = books.Buffer{ID: id}
	}
	r, err := findOwners(b.p.PID, live, b.p.owners.known, func(ids map[uint64]uint64) (map[uint64]owner.Holder, error) {
		holders := make(map[uint64]owner.Holder)
		for object, id := range ids {
			if path, ok := paths[id]; ok {
				holders[object] = holderOf(path)
			}
		}
		return holders, nil
	})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(d.takeOwners(b.p, b.search, &r, ns)))
}

func holderOf(path string) owner.Holder {
	return owner.Holder{Path: path}
}

// reported releases the events, and returns the owners: "1=model.wq".
func reported(d *decoder) (list []string) {
	d.release(finished, func(e *event.Event) {
		if e.Kind == event.Owner && e.BufferID != event.NoBuffer {
			list = append(list, fmt.Sprintf("%d=%s", e.BufferID, e.Cause))
		}
	})
	return list
}

// TestASecondSearchReportsWhatChanged: an owner that is known is not reported again, and a buffer
// that nobody holds any more has no owner.
func TestASecondSearchReportsWhatChanged(t *testing.T) {
	d, begun, allocate := newSearched()
	allocate(7, 1, 2, 3, 4)
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
		qt.Assert(t, qt.IsNotNil(d.want(d.process(7), false)))
		d.beginSearches(10)
		qt.Assert(t, qt.HasLen(*begun, i+1))
		one := &(*begun)[i]
		one.end(t, d, 20, step.paths)
		qt.Check(t, qt.IsFalse(one.isOver())) // its events were not released yet
		qt.Check(t, qt.DeepEquals(reported(d), step.want))
		qt.Check(t, qt.IsTrue(one.isOver()))
		qt.Check(t, qt.HasLen(d.searches.of, 0))
	}
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
		"moved":             {map[uint64]owner.Holder{0x20: holderOf("b")}, [2]error{}, []string{"1=a", "2=b"}, 2},
		"gone":              {nil, [2]error{}, []string{"1=a", "2="}, 1},
		"incomplete":        {nil, [2]error{incomplete}, []string{"1=a"}, 2},
		"incomplete second": {nil, [2]error{nil, incomplete}, []string{"1=a"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			r, err := findOwners(7, live, known, func(ids map[uint64]uint64) (map[uint64]owner.Holder, error) {
				calls++
				if calls == 1 {
					return map[uint64]owner.Holder{0x10: holderOf("a")}, c.errs[0]
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
	d, begun, allocate := newSearched()
	allocate(7, 1, 2, 3)
	d.want(d.process(7), false)
	d.beginSearches(10)
	free := bpf.KernelFreeRecord{Object: 0x1001}
	free.H = bpf.KernelHeader{TimeNs: 11, Tgid: 7, Tid: 7, Kind: bpf.RecordFree}
	d.decode(raw(&free))
	other := bufferRecord(12, 0x1002, 20)
	other.H.Tgid, other.H.Tid = 7, 7
	d.decode(raw(other))
	(*begun)[0].end(t, d, 20, map[uint64]string{1: "a", 2: "b", 3: "c"})
	qt.Check(t, qt.DeepEquals(reported(d), []string{"3=c"}))

	d.want(d.process(7), false)
	d.beginSearches(30)
	next := d.want(d.process(7), false)
	one := &(*begun)[1]
	d.end(d.process(7), event.Event{TimeNs: 31}) // an exec
	qt.Check(t, qt.IsTrue(*one.stopped))
	qt.Check(t, qt.IsTrue(one.isOver()))
	<-next.over
	allocate(7, 3)
	one.end(t, d, 40, map[uint64]string{3: "c"})
	qt.Check(t, qt.HasLen(reported(d), 0))
	qt.Check(t, qt.Equals(d.searches.running, 0))
	qt.Check(t, qt.HasLen(d.searches.of, 0))
}

// TestSearchesShareTheNext: a process is searched once at a time, and what is asked meanwhile gets one
// more search.
func TestSearchesShareTheNext(t *testing.T) {
	d, begun, allocate := newSearched()
	d.OwnersAtMarks = true
	d.MarkAt = []string{"step"}
	allocate(7, 1)
	allocate(8, 1)
	for range 100 {
		d.mark(d.process(7), event.Event{TimeNs: 5, PID: 7, TID: 7}, 0)
		d.beginSearches(10)
	}
	qt.Check(t, qt.HasLen(*begun, 1)) // and not of the other process
	(*begun)[0].end(t, d, 20, nil)
	for range 3 {
		d.beginSearches(20)
	}
	qt.Check(t, qt.HasLen(*begun, 2))
	(*begun)[1].end(t, d, 30, nil)
	d.beginSearches(40)
	qt.Check(t, qt.HasLen(*begun, 2))
	d.wantAtMark(nil) // of all processes
	d.beginSearches(50)
	qt.Check(t, qt.HasLen(*begun, 4))
}

// TestAThousandFailuresASecond cost a search every few seconds, and in the end a small share of the
// time.
func TestAThousandFailuresASecond(t *testing.T) {
	const second, took = 1e9, 4 * 1e9
	d, begun, allocate := newSearched()
	allocate(7, 1)
	ended := 0
	for ns := uint64(0); ns < 1000*second; ns += second / 1000 {
		d.wantAfterFailure(d.process(7))
		d.beginSearches(ns + 1)
		if ended < len(*begun) && ns >= (*begun)[ended].beganNs+took {
			(*begun)[ended].end(t, d, ns, nil)
			ended++
		}
		switch ns {
		case second:
			qt.Check(t, qt.HasLen(*begun, 1))
		case 6 * second:
			qt.Check(t, qt.HasLen(*begun, 2))
		}
	}
	spent := float64(len(*begun)) * took
	qt.Check(t, qt.IsTrue(spent > 1000*second/searchShare), qt.Commentf("%d searches", len(*begun)))
	qt.Check(t, qt.IsTrue(spent < 1000*second/searchShare+2*searchBurstNs), qt.Commentf("%d searches", len(*begun)))
	for ended < len(*begun) {
		(*begun)[ended].end(t, d, 1000*second, nil)
		ended++
	}
	// The user has to wait, and root does not.
	d.searches.user(d.processes[7].user, 1000*second).spentNs = searchBurstNs
	w := d.request([]int{7}, true, 1000*second)
	qt.Check(t, qt.ErrorIs(w.err, errTooOften))
	qt.Check(t, qt.HasLen(w.list, 0))
	w = d.request(nil, false, 1000*second)
	qt.Check(t, qt.IsNil(w.err))
	qt.Check(t, qt.HasLen(w.list, 1))
	d.beginSearches(1000 * second)
	qt.Check(t, qt.HasLen(*begun, ended+1))
}

// TestSearchesAreBounded: in number, and for each user.
func TestSearchesAreBounded(t *testing.T) {
	d, begun, allocate := newSearched()
	for pid := 10; pid < 20; pid++ {
		allocate(pid, 1)
		d.processes[pid].user = pid / 5 // five of each user
		d.want(d.process(pid), true)
	}
	d.beginSearches(1)
	users := make(map[int]int)
	for _, b := range *begun {
		users[b.user]++
	}
	qt.Check(t, qt.DeepEquals(users, map[int]int{2: maxSearchesOfUser, 3: maxSearchesOfUser}))
	qt.Check(t, qt.Equals(d.searches.running, maxSearches))
	for n := 0; n < len(*begun); n++ {
		(*begun)[n].end(t, d, 1, nil)
		d.beginSearches(1)
	}
	qt.Check(t, qt.HasLen(*begun, 10))
	qt.Check(t, qt.HasLen(d.searches.users, 0)) // nothing was spent
}

// TestOnlyLateSearchesAreAwaited: a command that waits for the owners of a program does not wait for
// searches after failures, of which there may be ever more.
func TestOnlyLateSearchesAreAwaited(t *testing.T) {
	d, begun, allocate := newSearched()
	tr := &Tracer{decoder: d}
	allocate(7, 1)
	d.wantLate(d.process(7))
	d.wantAfterFailure(d.process(7))
	d.beginSearches(1)
	d.wantAfterFailure(d.process(7))
	qt.Check(t, qt.IsTrue(tr.Searching()))
	(*begun)[0].end(t, d, 2, nil)
	qt.Check(t, qt.IsNotNil(d.processes[7].owners.next))
	qt.Check(t, qt.IsFalse(tr.Searching()))

	d.wantLate(d.process(7)) // and one of a process that ends
	qt.Check(t, qt.IsTrue(tr.Searching()))
	d.endSearches(d.process(7))
	qt.Check(t, qt.IsFalse(tr.Searching()))
}

// TestOwnersAreReportedInParts, so that other events do not wait, and all of them when tracing ends.
func TestOwnersAreReportedInParts(t *testing.T) {
	d, begun, allocate := newSearched()
	allocate(7, 1)
	p := d.processes[7]
	r := &ownersFound{}
	for id := range uint64(maxTaken + 10) {
		p.Live[id] = books.Buffer{ID: id}
		r.changed = append(r.changed, event.Event{Kind: event.Owner, PID: 7, Object: id, BufferID: id, Cause: "x"})
	}
	d.want(d.process(7), false)
	d.beginSearches(1)
	s := (*begun)[0].search
	d.taken = 100
	qt.Check(t, qt.IsFalse(d.takeOwners(d.process(7), s, r, 2)))
	qt.Check(t, qt.HasLen(reported(d), maxTaken-100))
	d.taken = math.MinInt / 2
	qt.Check(t, qt.IsTrue(d.takeOwners(d.process(7), s, r, 2)))
	qt.Check(t, qt.HasLen(reported(d), 110))
}

// BenchmarkBeginSearch is what the beginning of a search costs the events: a copy of the live buffers.
func BenchmarkBeginSearch(b *testing.B) {
	d, begun, allocate := newSearched()
	_ = begun
	allocate(7, 1)
	for id := range uint64(1 << 20) {
		d.processes[7].Live[id*64] = books.Buffer{ID: id}
	}
	d.search = func(*process, *search) context.CancelFunc { return func() {} }
	for b.Loop() {
		s := d.want(d.process(7), false)
		d.beginSearches(1)
		d.takeOwners(d.process(7), s, &ownersFound{}, 2)
	}
}
