package aggregate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// traces is a step of a captured trace, from call stack 99.
func traces(now uint64, kind event.Kind, id uint64, devices ...int) event.Event {
	return event.Event{TimeNs: now, Kind: kind, PID: 7, ProgramID: id, Devices: devices, Stack: event.NewStack(99, nil)}
}

// traceBuffer is the memory of a captured trace.
func traceBuffer(now, id uint64, before bool) event.Event {
	e := tensor(now, 7, id, 0)
	e.Region, e.BytesPerBank, e.Banks, e.BeforeAttach = event.Trace, 10, 12, before
	return e
}

// captured are two programs, of which the first runs once and the second twice in trace 3.
func captured() []event.Event {
	return []event.Event{
		chipOf(1000),
		runs(2, 5, 1, 0), static(3, 5, 100, event.CircularBuffer, 1, 0), runs(4, 6, 2, 0), static(5, 6, 300, event.CircularBuffer, 1, 0),
		traces(10, event.TraceBegin, 3, 0), runs(11, 6, 2, 0), runs(12, 5, 1, 0), runs(13, 6, 2, 0), traces(14, event.TraceEnd, 3, 0),
		traceBuffer(15, 8, false), runs(16, 5, 1, 0),
	}
}

// l1Of returns the peak of L1 of chip 0.
func l1Of(s *aggregate.State) memory.L1Peak { return settled(s).Snapshot().Devices[0].L1PerCore.Peak }

func TestAReplayRunsTheProgramsOfItsTrace(t *testing.T) {
	s := after(append(captured(), inL1(20, 1, 600, 0), traces(21, event.TraceReplay, 3, 0), traces(22, event.TraceReplay, 3, 0), free(23, 7, 1))...)
	for name, s := range map[string]*aggregate.State{"played": s, "restored": restored(t, s)} {
		list := operationsOf(t, s)
		qt.Assert(t, qt.HasLen(list, 2), qt.Commentf("%s", name))
		qt.Check(t, qt.DeepEquals([]uint64{list[0].Runs, list[0].Replays, list[0].LastNs}, []uint64{5, 2, 22}))
		qt.Check(t, qt.DeepEquals([]uint64{list[1].Runs, list[1].Replays, list[1].LastNs}, []uint64{7, 4, 22}))
		// each has a sample with the tensors of the replay
		qt.Check(t, qt.DeepEquals(list[0].Peak, memory.CoreUse{TimeNs: 21, ProgramID: 5, CapacityBytes: 1000, TensorBytes: 600, CBBytes: 100}))
		qt.Check(t, qt.DeepEquals(list[1].Peak, memory.CoreUse{TimeNs: 21, ProgramID: 6, CapacityBytes: 1000, TensorBytes: 600, CBBytes: 300}))
		qt.Check(t, qt.DeepEquals(l1Of(s), memory.L1Peak{TimeNs: 21, BufferBytes: 600, CBBytes: 300}))
	}
}

// At the moment of a replay the program that needs the most is the one that runs, whichever was captured
// last.
func TestTheFullestProgramOfAReplayRuns(t *testing.T) {
	s := after(append(captured(), inL1(20, 1, 600, 0), traces(21, event.TraceReplay, 3, 0))...)
	var running []uint64
	for _, one := range s.Statics(0) {
		if s.Runs(&one, 0) {
			running = append(running, one.ProgramID)
		}
	}
	qt.Check(t, qt.DeepEquals(running, []uint64{6}))
	var list []memory.ProgramRun
	s.OnRun(func(r memory.ProgramRun) { r.Of = nil; list = append(list, r) })
	event := free(22, 7, 1)
	s.Apply(&event)
	qt.Check(t, qt.DeepEquals(list, []memory.ProgramRun{{Point: memory.Point{Number: 14, TimeNs: 21}, Bytes: 900, StaticBytes: 300}}))
}

// The peak of L1 is a lower bound only if a trace may run what is not known.
func TestThePeakIsExactWhereCapturesAreSeen(t *testing.T) {
	replay := traces(21, event.TraceReplay, 3, 0)
	for _, test := range []struct {
		name    string
		events  []event.Event
		atLeast bool
	}{
		{"seen", append(captured(), replay), false},
		{"released", append(captured(), replay, traces(22, event.TraceRelease, 3, 0)), false},
		{"a trace from before the attach", append(captured(), traceBuffer(20, 9, true)), true},
		{"a library that reports no captures", []event.Event{chipOf(1000), traceBuffer(20, 9, false)}, true},
		{"a capture that was not seen", append(captured(), traces(21, event.TraceReplay, 4, 0)), true},
		{"replayed after its release", append(captured(), traces(20, event.TraceRelease, 3, 0), replay), true},
		{"a program that is gone", append(captured(), endCBs(20, 7, 6), replay), true},
		{"a program that had nothing", append(captured()[:1], traces(10, event.TraceBegin, 3, 0), runs(11, 6, 2, 0), traces(14, event.TraceEnd, 3, 0), replay), false},
		{"after the device was closed", append(captured(), event.Event{TimeNs: 20, Kind: event.DeviceClose, PID: 7, Allocator: 1, Devices: []int{0}}, replay), true},
	} {
		qt.Check(t, qt.Equals(l1Of(after(test.events...)).AtLeast, test.atLeast), qt.Commentf("%s", test.name))
	}
}

// Replays of a trace whose capture was not seen are those of the line that replays it.
func TestReplaysOfAnUnknownTrace(t *testing.T) {
	s := after(chipOf(1000), traces(21, event.TraceReplay, 3, 0), traces(22, event.TraceReplay, 3, 0))
	list := operationsOf(t, s)
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.DeepEquals(list[0], memory.Operation{PID: 7, Devices: []int{0}, Replays: 2, FirstNs: 21, LastNs: 22}))
	qt.Check(t, qt.IsTrue(list[0].OnlyReplayed()))
	qt.Check(t, qt.IsFalse(list[0].OnlyFailed()))
}

// A trace that has no room in its region is none.
func TestATraceThatDidNotFit(t *testing.T) {
	tooSmall := event.Event{TimeNs: 15, Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Region: event.Trace, Reason: event.ReasonTraceTooSmall}
	s := after(append(captured(), tooSmall)...)
	_, seen := s.TraceRuns(7, []int{0}, 3)
	qt.Check(t, qt.IsFalse(seen))
}

// Programs belong to the trace of their chips: a mesh may capture one while another chip runs programs.
func TestTracesOfSeveralChips(t *testing.T) {
	s := after(
		traces(1, event.TraceBegin, 3, 0, 1), traces(1, event.TraceBegin, 3, 2),
		runs(2, 5, 1, 0, 1), runs(3, 6, 1, 1), runs(4, 7, 1, 2), runs(5, 8, 1, 1, 2), runs(6, 9, 1),
		traces(7, event.TraceEnd, 3, 0, 1), runs(8, 10, 1, 0, 1), runs(9, 11, 1, 2),
	)
	programs := func(devices ...int) (list []uint64) {
		runs, seen := s.TraceRuns(7, devices, 3)
		qt.Check(t, qt.IsTrue(seen))
		for _, r := range runs {
			qt.Check(t, qt.Equals(r.Count, 1))
			list = append(list, r.ProgramID)
		}
		return list
	}
	qt.Check(t, qt.DeepEquals(programs(0, 1), []uint64{5, 6}))
	qt.Check(t, qt.DeepEquals(programs(2), []uint64{7, 11}))
}

func TestTracesAreBounded(t *testing.T) {
	s := aggregate.New()
	apply := func(e event.Event) { s.Apply(&e) }
	apply(traces(1, event.TraceBegin, 3, 0))
	for i := range uint64(1<<16 + 10) {
		apply(runs(2, i, 1, 0))
	}
	apply(traces(3, event.TraceEnd, 3, 0))
	list, _ := s.TraceRuns(7, []int{0}, 3)
	qt.Check(t, qt.HasLen(list, 1<<16))
	qt.Check(t, qt.IsFalse(l1Of(s).AtLeast))
	apply(traces(4, event.TraceReplay, 3, 0))
	qt.Check(t, qt.IsTrue(l1Of(s).AtLeast))
	for i := range uint64(2000) {
		apply(traces(5, event.TraceBegin, 10+i, 0))
		apply(traces(5, event.TraceEnd, 10+i, 0))
	}
	_, seen := s.TraceRuns(7, []int{0}, 2009)
	qt.Check(t, qt.IsFalse(seen))
}

// randomTrace makes an event a step of a captured trace.
func randomTrace(r *rand.Rand, e event.Event) event.Event {
	return event.Event{
		TimeNs: e.TimeNs, Kind: event.TraceBegin + event.Kind(r.IntN(4)), PID: e.PID, Devices: e.Devices, ProgramID: r.Uint64N(2), Stack: e.Stack,
	}
}

// What a replay does is not computed again while nothing changes: it is as if it were.
func TestReplaysAreRemembered(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	first := captured()
	s, fresh := after(first...), after(first...)
	live := map[uint64]bool{}
	for now := uint64(20); now < 1200; now++ {
		id := 20 + random.Uint64N(4)
		one := traces(now, event.TraceReplay, 3, 0)
		switch n := random.IntN(10); {
		case n == 0 && live[id]:
			one, live[id] = free(now, 7, id), false
		case n == 1 && !live[id]:
			one, live[id] = inL1(now, id, 10*id, 0), true
		case n == 2:
			one = static(now, 5+random.Uint64N(2), 10+random.Uint64N(200), event.CircularBuffer, 1, 0)
		case n == 3:
			one = endCBs(now, 7, 5+random.Uint64N(2))
		case n == 4:
			one = runs(now, 7, 3, 0)
		}
		if random.IntN(50) == 0 {
			s.RestartOperations()
			fresh.RestartOperations()
		}
		s.Apply(&one)
		fresh = restored(t, fresh)
		fresh.Apply(&one)
	}
	qt.Check(t, qt.Equals(known(t, settled(s)), known(t, settled(fresh))))
	qt.Check(t, qt.DeepEquals(operationsOf(t, s), operationsOf(t, fresh)))
}

// A user's replays do not take all of the time: what they do beyond a rate is counted as lost.
func TestReplaysTakeLimitedTime(t *testing.T) {
	s := aggregate.New()
	apply := func(e event.Event) { s.Apply(&e) }
	apply(chipOf(1000))
	apply(traces(1, event.TraceBegin, 3, 0))
	const programs, replays = 1 << 15, 1 << 8
	for i := range uint64(programs) {
		apply(runs(2, i, 1, 0))
	}
	apply(traces(3, event.TraceEnd, 3, 0))
	for range uint64(replays) {
		apply(traces(4, event.TraceReplay, 3, 0)) // nothing changes
	}
	count := func() uint64 { return operationsOf(t, s)[0].Replays }
	qt.Check(t, qt.Equals(count(), programs*replays))
	qt.Check(t, qt.IsFalse(l1Of(s).AtLeast))
	before := count()
	for i := range uint64(replays) {
		apply(inL1(5, i+1, 1, 0))
		apply(traces(5, event.TraceReplay, 3, 0))
	}
	taken := (count() - before) / programs
	qt.Check(t, qt.IsTrue(taken >= replays/8 && taken < replays), qt.Commentf("%d", taken))
	qt.Check(t, qt.Equals(s.Snapshot().Processes[0].Lost[quota.Beyond], replays-taken))
	qt.Check(t, qt.IsTrue(l1Of(s).AtLeast))
	apply(inL1(2e9, 1000, 1, 0))
	apply(traces(2e9, event.TraceReplay, 3, 0))
	qt.Check(t, qt.Equals(count(), before+(taken+1)*programs))
}

// A process captures one trace for each of its meshes at a time. The oldest of very many is forgotten.
func TestCapturesAtATime(t *testing.T) {
	s := aggregate.New()
	apply := func(e event.Event) { s.Apply(&e) }
	for i := range 20 {
		apply(traces(1, event.TraceBegin, 3, i))
	}
	for i := range 20 {
		apply(traces(2, event.TraceEnd, 3, i))
		_, seen := s.TraceRuns(7, []int{i}, 3)
		qt.Check(t, qt.Equals(seen, i >= 4), qt.Commentf("%d", i))
	}
}
