package aggregate_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestTemporaryAllocations: of a call site that is used, of one whose device was closed and opened again, and of a process that
// ended. Buffers from before the attach, and those that end with their process, are not temporary.
func TestTemporaryAllocations(t *testing.T) {
	s := aggregate.New()
	id, now := uint64(0), uint64(0)
	apply := func(e event.Event) {
		now++
		e.TimeNs = now
		s.Apply(&e)
	}
	alloc := func(pid int, allocator uint64, stack *event.Stack, early bool) uint64 {
		id++
		apply(event.Event{Kind: event.Alloc, PID: pid, BufferID: id, Allocator: allocator, Devices: []int{0}, Region: event.L1, BytesPerBank: 10, Banks: 4, Stack: stack, BeforeAttach: early})
		return id
	}
	free := func(pid int, id uint64) {
		apply(event.Event{Kind: event.Free, PID: pid, BufferID: id, Reason: event.ReasonExplicit})
	}
	for _, pid := range []int{7, 8} {
		apply(event.Event{Kind: event.ProcessStart, PID: pid, UID: 1000, Start: new(event.Start)})
		for allocator := range uint64(3) {
			open := event.Event{PID: pid, Devices: []int{0}, Allocator: 1 + allocator, Open: new(event.Open)}
			open.Kind = event.DeviceOpen
			apply(open)
			for range 5 {
				free(pid, alloc(pid, 1+allocator, stacks[1], false))
			}
			free(pid, alloc(pid, 1+allocator, nil, true))
			var kept []uint64
			for range 3 {
				kept = append(kept, alloc(pid, 1+allocator, stacks[2], false))
			}
			free(pid, kept[0])
			free(pid, kept[1])
			open.Kind = event.DeviceClose
			apply(open)
		}
	}
	want := func(s *aggregate.State) {
		t.Helper()
		list, others := s.Temporary()
		qt.Check(t, qt.Equals(others, memory.Amount{}))
		sums := make(map[[2]uint64]uint64)
		for _, one := range list {
			qt.Check(t, qt.Equals(one.Bytes, 40*one.Count))
			sums[[2]uint64{uint64(one.PID), memory.StackID(one.Stack)}] += one.Count
		}
		qt.Check(t, qt.DeepEquals(sums, map[[2]uint64]uint64{{7, 1}: 15, {7, 2}: 3, {8, 1}: 15, {8, 2}: 3}))
	}
	want(s)
	apply(event.Event{Kind: event.ProcessExit, PID: 7})
	want(s)
	want(restored(t, s))
}

// TestTemporaryAllocationsOfManyCallSites: the state keeps those with the most bytes, and the sum of the others.
func TestTemporaryAllocationsOfManyCallSites(t *testing.T) {
	s := aggregate.New()
	const sites = 5000
	e := event.Event{Kind: event.ProcessStart, TimeNs: 1, PID: 7, UID: 1000, Start: new(event.Start)}
	s.Apply(&e)
	for i := range uint64(sites) {
		stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "f", File: "a.py", Line: int(i)}})
		for _, kind := range []event.Kind{event.Alloc, event.Free} {
			e := event.Event{
				TimeNs: 2 + i, Kind: kind, PID: 7, BufferID: 1 + i, Allocator: 1, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1 + i, Banks: 1,
				Stack: stack, Reason: event.ReasonExplicit,
			}
			s.Apply(&e)
		}
	}
	e = event.Event{Kind: event.ProcessExit, TimeNs: sites + 2, PID: 7}
	s.Apply(&e)
	list, sum := s.Temporary()
	qt.Check(t, qt.IsTrue(len(list) >= 1024 && len(list) < 2048), qt.Commentf("%d", len(list)))
	least := slices.MinFunc(list, func(a, b memory.SiteAmount) int { return cmp.Compare(a.Bytes, b.Bytes) })
	qt.Check(t, qt.IsTrue(int(least.Bytes) > sites-len(list)), qt.Commentf("%d", least.Bytes))
	for _, one := range list {
		sum.Add(one.Amount)
	}
	qt.Check(t, qt.Equals(sum, memory.Amount{Count: sites, Bytes: sites * (sites + 1) / 2}))
}

// TestHostMemory: a sample is of a process that is known, and counts in no number of events.
func TestHostMemory(t *testing.T) {
	s := aggregate.New()
	for i, e := range []event.Event{
		{Kind: event.HostMemory, PID: 7, SizeBytes: 1, BytesPerBank: 1},
		{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)},
		{Kind: event.HostMemory, PID: 7, SizeBytes: 100, BytesPerBank: 300},
		{Kind: event.HostMemory, PID: 7, SizeBytes: 200, BytesPerBank: 300},
		{Kind: event.HostMemory, PID: 8, SizeBytes: 1, BytesPerBank: 1},
	} {
		e.TimeNs = uint64(1 + i)
		s.Apply(&e)
	}
	qt.Check(t, qt.Equals(s.Number(), 1))
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		list := s.Snapshot().Processes
		qt.Assert(t, qt.HasLen(list, 1))
		qt.Check(t, qt.DeepEquals(list[0].Host, &memory.HostMemory{ResidentBytes: 200, PeakBytes: 300}))
	}
	e := event.Event{Kind: event.ProcessExit, TimeNs: 9, PID: 7}
	s.Apply(&e)
	qt.Check(t, qt.DeepEquals(s.Snapshot().Processes[0].Host, &memory.HostMemory{ResidentBytes: 200, PeakBytes: 300}))
}
