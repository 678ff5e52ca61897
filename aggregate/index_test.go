package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestAnIndexSaysWhatItLacks: of many marks and failures the newest are known, and from
// where on none is missing.
func TestAnIndexSaysWhatItLacks(t *testing.T) {
	s := aggregate.New()
	for i := range 5000 {
		s.Apply(&event.Event{TimeNs: uint64(i), Kind: event.Mark, Cause: fmt.Sprint(i)})
		s.Apply(&event.Event{TimeNs: uint64(i), Kind: event.AllocFailed, PID: 7})
		if i%1000 == 0 {
			s.Apply(&event.Event{TimeNs: uint64(i), Kind: event.Mark, PID: 7, Cause: "call"})
		}
	}
	for _, one := range []*aggregate.State{s, restored(t, s)} {
		x := one.Index()
		calls := 0
		for i := range x.Marks {
			if x.Marks[i].Name == "call" {
				calls++
			}
		}
		qt.Check(t, qt.Equals(calls, 5)) // the others do not displace them
		qt.Check(t, qt.HasLen(x.Marks, 1005))
		qt.Check(t, qt.Equals(x.Marks[len(x.Marks)-1].Name, "4999"))
		qt.Check(t, qt.HasLen(x.Failures, 1000))
		qt.Check(t, qt.Equals(x.FailuresFrom+2, x.Failures[0].Number))
		after := 0
		for i := range x.Marks {
			if x.Marks[i].Number > x.MarksFrom {
				after++
			}
		}
		qt.Check(t, qt.Equals(after, 1001)) // and the latest call
		qt.Check(t, qt.Equals(aggregate.NumberOf(one.Checkpoint()), one.Number()))
	}
}

// TestNoUserDisplacesAnother: of too many marks or failures each user keeps as many as another.
func TestNoUserDisplacesAnother(t *testing.T) {
	s := aggregate.New()
	const few, many, more = 1001, 1002, 1003
	for i, uid := range []int{few, many, more} {
		s.Apply(&event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: 7 + i, UID: uid})
	}
	add := func(pid, uid, n int) {
		for i := range n {
			s.Apply(&event.Event{TimeNs: 2, Kind: event.Mark, UID: uid, Cause: fmt.Sprint(i)})
			s.Apply(&event.Event{TimeNs: 2, Kind: event.AllocFailed, PID: pid})
		}
	}
	add(7, few, 3)
	add(8, many, 5000)
	add(9, more, 4000)
	add(8, many, 5000)
	for _, one := range []*aggregate.State{s, restored(t, s)} {
		x := one.Index()
		marks, failures := make(map[int]int), make(map[int]int)
		for _, m := range one.Marks() {
			marks[m.UID]++
		}
		for _, f := range one.Snapshot().Failures {
			failures[f.UID]++
		}
		qt.Check(t, qt.Equals(marks[few], 3))
		qt.Check(t, qt.IsTrue(marks[many] >= 498 && marks[more] >= 498 && len(one.Marks()) <= 1000), qt.Commentf("%v", marks))
		qt.Check(t, qt.DeepEquals(failures, marks))
		qt.Check(t, qt.IsTrue(x.MarksFrom > 9000*2 && x.MarksFrom < one.Number()))
		qt.Check(t, qt.Equals(one.Snapshot().FailureCount, 14003))
	}
}

// TestReadingFiguresDisplacesNoMark: a program that reads its memory all the time leaves the marks that its user sets.
func TestReadingFiguresDisplacesNoMark(t *testing.T) {
	s := aggregate.New()
	s.Apply(&event.Event{TimeNs: 1, Kind: event.Mark, UID: 1000, Cause: "warm"})
	for range 5000 {
		s.Apply(&event.Event{TimeNs: 2, Kind: event.Mark, UID: 1000, Cause: memory.ReadingMark})
	}
	for _, one := range []*aggregate.State{s, restored(t, s)} {
		qt.Assert(t, qt.HasLen(one.Marks(), 1))
		qt.Check(t, qt.Equals(one.Marks()[0].Name, "warm"))
		qt.Check(t, qt.HasLen(one.Index().Marks, 1))
	}
}

// TestManyIdsOfAUserDisplaceNothing: of marks, failures and ended processes, the ids of a user namespace have
// one share.
func TestManyIdsOfAUserDisplaceNothing(t *testing.T) {
	s := aggregate.New()
	const honest, owner = 1001, 1002
	add := func(pid, uid, sharer int) {
		s.Apply(&event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid, Count: uint64(sharer)})
		s.Apply(&event.Event{TimeNs: 2, Kind: event.Mark, UID: uid, Count: uint64(sharer), Cause: "mark"})
		s.Apply(&event.Event{TimeNs: 2, Kind: event.AllocFailed, PID: pid})
		s.Apply(&event.Event{TimeNs: 3, Kind: event.ProcessExit, PID: pid})
	}
	for i := range 50 {
		add(100+i, honest, 0)
	}
	for i := range 2000 {
		add(1000+i, 100000+i, owner)
	}
	marks, failures, ended := 0, 0, 0
	for _, m := range s.Marks() {
		if m.UID == honest {
			marks++
		}
	}
	snapshot := s.Snapshot()
	for _, f := range snapshot.Failures {
		if f.UID == honest {
			failures++
		}
	}
	for _, p := range snapshot.Processes {
		if p.UID == honest {
			ended++
		}
	}
	qt.Check(t, qt.DeepEquals([]int{marks, failures, ended}, []int{50, 50, 50}))
}

// TestTheBeginningEndsWithTheFirstAllocation: what was there before is found while a process
// that already ran goes on, and belongs to the beginning; a later process does not.
func TestTheBeginningEndsWithTheFirstAllocation(t *testing.T) {
	found := tensor(4, 7, 2, 0)
	found.BeforeAttach = true
	later := tensor(6, 8, 3, 0)
	later.BeforeAttach = true
	s := aggregate.New()
	for i, step := range []struct {
		event event.Event
		begin uint64
	}{
		{event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: 7}, 1},
		{wormhole(2, 7, 1, 0), 2},
		{tensor(3, 7, 1, 0), 2},
		{found, 4},
		{event.Event{TimeNs: 5, Kind: event.ProcessStart, PID: 8}, 4},
		{later, 4},
	} {
		s.Apply(&step.event)
		s = restored(t, s)
		qt.Check(t, qt.Equals(s.Index().Begin.Number, step.begin), qt.Commentf("event %d", i+1))
	}
}
