package aggregate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// runs is a program that is enqueued by a stack.
func runs(now uint64, program, stack uint64, devices ...int) event.Event {
	return event.Event{TimeNs: now, Kind: event.ProgramRun, PID: 7, ProgramID: program, Devices: devices, Stack: event.NewStack(stack, nil)}
}

// inL1 is a buffer with so many bytes in each bank of L1.
func inL1(now, id, perBank uint64, devices ...int) event.Event {
	e := tensor(now, 7, id, devices...)
	e.Region, e.BytesPerBank, e.Banks = event.L1, perBank, 64
	return e
}

// static is a CBAlloc of a kind, on the cores from (0,0) to (x,0).
func static(now, program, size uint64, kind event.StaticKind, x uint16, devices ...int) event.Event {
	e := cb(now, 7, program, 1000*now, size, x, 0, devices...)
	e.StaticKind = kind
	return e
}

func operationsOf(t *testing.T, s *aggregate.State) []memory.Operation {
	t.Helper()
	list, others := settled(s).Operations()
	qt.Assert(t, qt.Equals(others, 0))
	for i := range list {
		list[i].Stack = nil
	}
	return list
}

// A cold run counts what the program gets after it, and a run from the program cache the same,
// with the tensors of its own time.
func TestOperationsCountCachedRunsLikeCompiledOnes(t *testing.T) {
	s := after(
		event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}, Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{event.L1: {Banks: 64, BytesPerBank: 10_000}}}},
		inL1(2, 1, 100, 0),
		runs(3, 5, 1, 0),
		static(4, 5, 10, event.CircularBuffer, 7, 0), static(5, 5, 20, event.DataflowBuffer, 7, 0),
		kernels(6, 7, 5, 1000, 300, 0),
	)
	cold := memory.Operation{PID: 7, Devices: []int{0}, Runs: 1, FirstNs: 3, LastNs: 3, Peak: memory.CoreUse{
		TimeNs: 5, ProgramID: 5, CapacityBytes: 10_000, TensorBytes: 100, CBBytes: 10, DFBBytes: 20,
	}}
	qt.Check(t, qt.DeepEquals(operationsOf(t, s), []memory.Operation{cold}))
	// what was read from the process's memory after the next buffer was allocated counts from the next
	// run on
	late := static(8, 5, 5, event.Scratchpad, 7, 0)
	late.BeforeAttach = true
	for _, e := range []event.Event{inL1(7, 2, 1000, 0), late} {
		s.Apply(&e)
	}
	qt.Check(t, qt.DeepEquals(operationsOf(t, s), []memory.Operation{cold}))
	// from the cache, by another line
	e := runs(9, 5, 2, 0)
	s.Apply(&e)
	warm := cold
	warm.Peak.ScratchpadBytes = 5
	warm.FirstNs, warm.LastNs, warm.Peak.TimeNs, warm.Peak.TensorBytes = 9, 9, 9, 1100
	qt.Check(t, qt.DeepEquals(operationsOf(t, s), []memory.Operation{cold, warm}))
	qt.Check(t, qt.Equals(warm.Peak.HeadroomBytes(), 10_000-1135))

	// another count begins, and the program is still known
	s.RestartOperations()
	qt.Check(t, qt.HasLen(operationsOf(t, s), 0))
	e = runs(10, 5, 2, 0)
	s.Apply(&e)
	warm.FirstNs, warm.LastNs, warm.Peak.TimeNs = 10, 10, 10
	qt.Check(t, qt.DeepEquals(operationsOf(t, s), []memory.Operation{warm}))
}

// The core is the fullest one: buffers of a program on different cores do not add up, and those
// on single cores do.
func TestOperationsUseTheFullestCore(t *testing.T) {
	one := inL1(2, 9, 25, 0)
	one.PerCore, one.Cores, one.Banks = true, []event.CoreRange{{X0: 3, X1: 3}}, 1
	left := static(4, 5, 10, event.CircularBuffer, 1, 0)
	right := static(5, 5, 30, event.CircularBuffer, 3, 0)
	right.Cores[0].X0 = 2
	all := static(6, 5, 1, event.DataflowBuffer, 3, 0)
	global := static(7, 5, 1000, event.CircularBuffer, 3, 0)
	global.Global = true

	list := operationsOf(t, after(runs(3, 5, 1, 0), left, right, all, global))
	qt.Check(t, qt.Equals(list[0].Peak, memory.CoreUse{TimeNs: 7, ProgramID: 5, X: 2, CBBytes: 30, DFBBytes: 1}))
	list = operationsOf(t, after(one, runs(3, 5, 1, 0), left, right, all, global))
	qt.Check(t, qt.Equals(list[0].Peak, memory.CoreUse{TimeNs: 7, ProgramID: 5, X: 3, TensorBytes: 25, CBBytes: 30, DFBBytes: 1}))
}

// A mesh has the fullest of its chips.
func TestOperationsOfAMesh(t *testing.T) {
	list := operationsOf(t, after(inL1(1, 1, 100, 1), runs(2, 5, 1, 0, 1, 2), static(3, 5, 10, event.DataflowBuffer, 1, 0, 1, 2), runs(4, 5, 1, 0, 1, 2)))
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Runs, 2))
	qt.Check(t, qt.Equals(list[0].Peak, memory.CoreUse{TimeNs: 3, ProgramID: 5, Device: 1, TensorBytes: 100, DFBBytes: 10}))
}

// Where no run is seen, the line that compiled a program is listed without a number of runs.
func TestOperationsWithoutRuns(t *testing.T) {
	compiled := static(1, 5, 10, event.CircularBuffer, 1, 0)
	compiled.Stack = event.NewStack(3, nil)
	read := static(2, 6, 10, event.CircularBuffer, 1, 0) // of before the attach
	list := operationsOf(t, after(compiled, read))
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Runs, 0))
	qt.Check(t, qt.Equals(list[0].Peak.CBBytes, 10))
}

// Of very many operations those that ran last are known, also after a checkpoint.
func TestOperationsAreBounded(t *testing.T) {
	s := aggregate.New()
	const count = 20_000
	for i := range uint64(count) {
		e := runs(1+i, i, 1+i, 0)
		s.Apply(&e)
		if i%10 == 0 {
			e = runs(1+i, 0, 1, 0)
			s.Apply(&e)
		}
	}
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		list, others := s.Operations()
		qt.Check(t, qt.IsTrue(len(list) >= 4096 && len(list) < 8192), qt.Commentf("%d", len(list)))
		qt.Check(t, qt.Equals(others+uint64(len(list)), count))
		kept := make(map[uint64]uint64)
		for _, op := range list {
			kept[op.Stack.ID] = op.Runs
		}
		qt.Check(t, qt.Equals(kept[1], 1+count/10)) // it runs again and again
		qt.Check(t, qt.Equals(kept[count], 1))
		qt.Check(t, qt.Equals(kept[2], 0))
	}
}

// randomRun makes an event one of a program that runs.
func randomRun(r *rand.Rand, e event.Event) event.Event {
	run := event.Event{
		TimeNs: e.TimeNs, Kind: event.ProgramRun, PID: e.PID, Devices: e.Devices, ProgramID: r.Uint64N(4), Stack: e.Stack,
	}
	if r.IntN(4) > 0 {
		run.Uses = new(event.Uses)
		for before := range min(e.TimeNs, 50) { // of randomEvent's buffers
			for id := range uint64(8) {
				at := uint32((1+e.TimeNs-before)<<20 + uint64(e.PID)<<12 + id<<8)
				run.Uses.Arguments, run.Uses.Statics = append(run.Uses.Arguments, at), append(run.Uses.Statics, at+8)
			}
		}
	}
	return run
}

// BenchmarkApplyRuns runs 200 programs from 50 call stacks, each after a buffer was allocated
// and before it is freed.
func BenchmarkApplyRuns(b *testing.B) {
	s := aggregate.New()
	const programs = 200
	for program := range uint64(programs) {
		for i := range uint64(6) {
			e := cb(1, 7, program, 100_000+4096*i, 4096, 7, 7, 0)
			s.Apply(&e)
		}
	}
	stacks := make([]*event.Stack, 50)
	for i := range stacks {
		stacks[i] = event.NewStack(uint64(i+1), nil)
	}
	alloc, end := inL1(0, 0, 2048, 0), event.Event{Kind: event.Free, PID: 7, Reason: event.ReasonExplicit}
	run := runs(0, 0, 1, 0)
	events, id := 0, uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		id++
		alloc.BufferID, end.BufferID, run.ProgramID = id, id, id%programs
		alloc.Stack, run.Stack = stacks[id%50], stacks[id%50]
		alloc.TimeNs, run.TimeNs, end.TimeNs = id*300, id*300+100, id*300+200
		s.Apply(&alloc)
		s.Apply(&run)
		s.Apply(&end)
		events += 3
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
