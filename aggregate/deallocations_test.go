package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// The latest free of each of the latest call stacks is kept, the newest first, also of stacks that freed before
// many others.
func TestLatestFrees(t *testing.T) {
	s, id := aggregate.New(), uint64(0)
	stacks := make([]*event.Stack, 300)
	for i := range stacks {
		stacks[i] = event.NewStack(uint64(i+1), nil)
	}
	free := func(stack *event.Stack) {
		id++
		for _, e := range []event.Event{
			{Kind: event.Alloc, Region: event.DRAM, SizeBytes: 64, BytesPerBank: 64, Banks: 1},
			{Kind: event.Free, Region: event.DRAM, Reason: event.ReasonExplicit, Stack: stack},
		} {
			e.TimeNs, e.PID, e.BufferID, e.Devices = id, 7, id, []int{0}
			s.Apply(&e)
		}
	}
	for _, stack := range stacks {
		free(stack)
	}
	for _, i := range []int{2, 66, 2, 3} {
		free(stacks[i])
	}
	latest := s.Deallocations(7)
	qt.Assert(t, qt.IsTrue(len(latest) >= 128))
	for i, want := range []int{3, 2, 66, 299, 298} {
		qt.Check(t, qt.Equals(latest[i].FreedBy, stacks[want]))
	}
	seen := make(map[*event.Stack]bool)
	for _, one := range latest {
		qt.Check(t, qt.IsFalse(seen[one.FreedBy]))
		seen[one.FreedBy] = true
	}
}
