package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
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
		qt.Check(t, qt.Equals(x.FailuresFrom+1, x.Failures[0].Number))
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
