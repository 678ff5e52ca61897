package aggregate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// restored is a new State after the checkpoint of s.
func restored(t *testing.T, s *aggregate.State) *aggregate.State {
	t.Helper()
	fresh := aggregate.New()
	var last uint64
	for e := range s.Checkpoint() {
		if e.TimeNs < last {
			t.Fatalf("%v at %d comes after %d", e.Kind, e.TimeNs, last)
		}
		last = e.TimeNs
		if fresh.Implied(e).Next() {
			t.Fatalf("%+v implies something", e)
		}
		fresh.Apply(e)
	}
	return fresh
}

// known is all that a State tells, as text.
func known(t *testing.T, s *aggregate.State) string {
	t.Helper()
	text, err := json.Marshal(s.Snapshot())
	qt.Assert(t, qt.IsNil(err))
	var b strings.Builder
	b.Write(bytes.ReplaceAll(text, []byte(","), []byte(",\n")))
	for _, h := range s.Held() {
		fmt.Fprintf(&b, "\n%+v", h)
	}
	for id := range modelChips {
		for _, c := range s.Statics(id) {
			fmt.Fprintf(&b, "\n%+v", c)
		}
	}
	return b.String()
}

// checkSame checks that two States know the same, and shows where they begin to
// differ.
func checkSame(t *testing.T, got, want *aggregate.State, comment qt.Comment) {
	t.Helper()
	a, b := strings.Split(known(t, got), "\n"), strings.Split(known(t, want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-30)
			t.Fatalf("%s: got\n%s\nwant\n%s", comment, strings.Join(a[from:i+1], "\n"), b[i])
		}
	}
	qt.Assert(t, qt.HasLen(a, len(b)), comment)
}

// fullEvent is as randomEvent, of every kind and with every field that a State
// keeps. The older the run, the more processes it has ended.
func fullEvent(r *rand.Rand, now uint64) event.Event {
	e := randomEvent(r, now)
	e.Stack = stacks[r.IntN(len(stacks))]
	e.BeforeAttach = r.IntN(5) == 0
	e.TID, e.Object = e.PID+r.IntN(2), r.Uint64N(100)
	e.Comm = []string{"", "python3", "worker"}[r.IntN(3)]
	switch r.IntN(30) {
	case 0, 1:
		e.Kind = event.DeviceOpen
		e.Board, e.Arch = []string{"", "n150", "n300"}[r.IntN(3)], []string{"", "wormhole_b0"}[r.IntN(2)]
		if r.IntN(4) > 0 {
			for region := range e.Capacities {
				e.Capacities[region] = event.Capacity{Banks: 4, BytesPerBank: r.Uint64N(4) * 100}
			}
		}
	case 2:
		e.Kind, e.Message, e.Reason = event.AllocFailed, "no", event.ReasonOutOfMemory
	case 3:
		e.Kind, e.Cause, e.Count = event.Lost, []string{"a", "b"}[r.IntN(2)], r.Uint64N(5)
	case 4:
		e.Kind, e.ExitStatus = event.ProcessExit, r.IntN(3)-1
	case 5:
		e.Kind = event.Free
		e.Reason = []event.Reason{event.ReasonDeviceClose, event.ReasonProcessExit}[r.IntN(2)]
	case 6:
		e.Kind = event.CBAlloc
		e.Devices = append(e.Devices, r.IntN(3))
	case 7:
		e.Kind, e.Devices = event.Alloc, nil
	case 8:
		e = event.Event{TimeNs: now, Kind: event.Mark, Cause: fmt.Sprint("mark ", now), UID: 1000 + r.IntN(3)}
	}
	if e.Kind == event.ProcessStart {
		e.Command, e.Library, e.Release = fmt.Sprint("run ", now), "/lib/libtt_metal.so", "0.81.1"
		e.UID, e.Container, e.Pod, e.ContainerPID = 1000+e.PID, "0123456789abcdef", "pod", r.IntN(9)
		e.AttachedLate = r.IntN(2) == 0
	}
	return e
}

func TestACheckpointTellsAllThatAStateKnows(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := aggregate.New()
		now := uint64(0)
		step := func(states ...*aggregate.State) {
			e := fullEvent(r, now)
			for _, s := range states {
				s.Apply(&e)
			}
			// At times several things happen at once.
			now += r.Uint64N(4)
		}
		for range r.IntN(4000) {
			step(s)
		}
		comment := qt.Commentf("seed %d, time %d", seed, now)
		second := restored(t, s)
		checkSame(t, second, s, comment)
		third := restored(t, second)
		for range 4 {
			for range 150 {
				step(s, second, third)
			}
			checkSame(t, second, s, comment)
			checkSame(t, third, s, comment)
		}
	}
}

func TestACheckpointIsTheSameAfterItWasWrittenAndRead(t *testing.T) {
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "model.py", Line: 3}})
	start := event.Event{
		TimeNs: 1, Kind: event.ProcessStart, PID: 7, TID: 7, Comm: "python3", Command: "python3 x.py", UID: 1000,
		Container: "0123456789abcdef", Pod: "pod", ContainerPID: 3, AttachedLate: true,
	}
	found := tensor(3, 7, 1, 0, 1)
	found.BeforeAttach = true
	left := tensor(4, 8, 1, 1)
	left.Stack = stack
	l1 := tensor(5, 7, 2, 0)
	l1.Region, l1.Stack, l1.TID, l1.Comm = event.L1, stack, 9, "worker"
	s := after(start, wormhole(2, 7, 1, 0, 1), found, left, cb(4, 7, 3, 1000, 100, 1, 1, 0, 1), l1,
		kernels(5, 7, 3, 4000, 300, 0, 1), free(6, 7, 99),
		event.Event{
			TimeNs: 7, Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Region: event.L1, SizeBytes: 5,
			PageSizeBytes: 2, Layout: event.BlockSharded, Reason: event.ReasonOutOfMemory, Message: "no", Stack: stack,
		},
		event.Event{TimeNs: 8, Kind: event.ProcessExit, PID: 8, ExitStatus: 9},
		event.Event{TimeNs: 9, Kind: event.Lost, Count: 3, Cause: "ring buffer full"})
	var file []byte
	for e := range s.Checkpoint() {
		file = append(e.AppendJSON(file), '\n')
	}
	read, r := aggregate.New(), event.NewReader(bytes.NewReader(file))
	for {
		e, err := r.Next()
		if err == io.EOF {
			break
		}
		qt.Assert(t, qt.IsNil(err))
		read.Apply(&e)
	}
	want, err := json.Marshal(s.Snapshot())
	qt.Assert(t, qt.IsNil(err))
	got, err := json.Marshal(read.Snapshot())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(got), string(want)))
	var again []byte
	for e := range read.Checkpoint() {
		again = append(e.AppendJSON(again), '\n')
	}
	qt.Check(t, qt.Equals(string(again), string(file)))
}

func TestACheckpointKeepsEachEventOfWhatLives(t *testing.T) {
	late := wormhole(1, 7, 5, 1, 0)
	late.Mesh, late.BeforeAttach = true, true
	buffer := from(1, tensor(2, 7, 1, 1, 0))
	buffer.TID, buffer.Comm, buffer.Object, buffer.Allocator, buffer.Address = 8, "worker", 9, 5, 32
	buffer.Layout, buffer.BeforeAttach = event.HeightSharded, true
	circular := from(2, cb(3, 7, 4, 1000, 100, 1, 1, 0, 1))
	circular.TID, circular.Comm, circular.Global = 8, "worker", true
	kernel := from(3, kernels(4, 7, 4, 4000, 300, 0, 1))
	kernel.BeforeAttach = true
	want := []event.Event{late, buffer, circular, kernel}
	got := make(map[event.Kind]event.Event)
	for e := range after(append(want, endCBs(5, 7, 9))...).Checkpoint() {
		if e.PID == 7 {
			got[e.Kind] = *e
		}
	}
	for _, e := range want {
		g := got[e.Kind]
		qt.Check(t, qt.Equals(g.Stack, e.Stack))
		g.Stack, e.Stack = nil, nil
		qt.Check(t, qt.DeepEquals(g, e))
	}
}

func TestACheckpointKeepsWhatIsForgotten(t *testing.T) {
	s := aggregate.New()
	for pid := 1; pid <= 300; pid++ {
		now := uint64(pid * 10)
		s.Apply(&event.Event{TimeNs: now, Kind: event.ProcessStart, PID: pid, UID: pid})
		for i := range uint64(9) {
			s.Apply(&event.Event{TimeNs: now + i, Kind: event.AllocFailed, PID: pid, Region: event.L1, Message: "no"})
		}
		s.Apply(&event.Event{TimeNs: now + 9, Kind: event.ProcessExit, PID: pid})
	}
	second := restored(t, s)
	snap := second.Snapshot()
	qt.Check(t, qt.Equals(snap.ExitedProcesses, 300))
	qt.Check(t, qt.Equals(snap.FailureCount, 2700))
	qt.Check(t, qt.Equals(snap.Failures[0].UID, 189))
	checkSame(t, second, s, qt.Commentf(""))
}

func TestACheckpointKeepsPeaksOfChipsThatNobodyUses(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0), tensor(3, 7, 2, 0), event.Event{TimeNs: 4, Kind: event.ProcessExit, PID: 7})
	dram := device(t, restored(t, s), 0).Regions.DRAM
	qt.Check(t, qt.Equals(dram.PeakBytes, 2*540672))
	qt.Check(t, qt.Equals(dram.PeakTimeNs, 3))
	qt.Check(t, qt.Equals(dram.PeakCapacityBytes, 12*wormholeDRAM))
	qt.Check(t, qt.Equals(dram.CapacityBytes, 12*wormholeDRAM))
}

func TestAProfileGetsWhatLivesFromACheckpoint(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := aggregate.New()
		s.KeepSites()
		for now := range uint64(600) {
			e := fullEvent(r, now)
			switch e.Kind {
			case event.ProcessStart, event.ProcessExit, event.DeviceClose:
				// a Sample's Live has what they leave too
				continue
			case event.Free:
				e.Reason = event.ReasonExplicit
			}
			feed(s, &e)
		}
		fresh := aggregate.New()
		for e := range s.Checkpoint() {
			fresh.Apply(e)
		}
		live := func(p *aggregate.Profile) map[place]aggregate.Amount {
			m := make(map[place]aggregate.Amount)
			for _, sample := range p.Samples {
				if sample.Live.Count > 0 {
					m[place{sample.PID, sample.Device, sample.Region, sample.Stack}] = sample.Live
				}
			}
			return m
		}
		want := live(s.Profile())
		qt.Assert(t, qt.Not(qt.HasLen(want, 0)))
		got := live(fresh.Profile())
		qt.Assert(t, qt.HasLen(got, len(want)))
		for at, a := range want {
			qt.Assert(t, qt.Equals(got[at], a), qt.Commentf("seed %d: %+v", seed, at))
		}
	}
}

func TestACheckpointMayBeLeftEarly(t *testing.T) {
	n := 0
	for range after(tensor(1, 7, 1, 0), tensor(2, 7, 2, 0)).Checkpoint() {
		if n++; n == 2 {
			break
		}
	}
	qt.Check(t, qt.Equals(n, 2))
}

// TestAFrozenCheckpointDoesNotChangeWithTheState: what is told is what the state
// knew, whatever happens to it meanwhile. The race detector looks on.
func TestAFrozenCheckpointDoesNotChangeWithTheState(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := aggregate.New()
		now := uint64(0)
		step := func() {
			e := fullEvent(r, now)
			s.Apply(&e)
			now += r.Uint64N(4)
		}
		for range 1000 + r.IntN(2000) {
			step()
		}
		var want []byte
		for e := range s.Checkpoint() {
			want = append(e.AppendJSON(want), '\n')
		}
		frozen := s.Freeze(nil)
		told := make(chan []byte)
		go func() {
			var got []byte
			for e := range frozen {
				got = append(e.AppendJSON(got), '\n')
			}
			told <- got
		}()
		for range 3000 {
			step()
		}
		qt.Assert(t, qt.Equals(string(<-told), string(want)), qt.Commentf("seed %d", seed))
	}
}

// TestACheckpointTellsOfTheNewestMarks: at their times, among what was allocated before
// and after; of others' to nobody else; and not of calls that were marked.
func TestACheckpointTellsOfTheNewestMarks(t *testing.T) {
	mark := func(timeNs uint64, name string, uid int) event.Event {
		return event.Event{TimeNs: timeNs, Kind: event.Mark, Cause: name, UID: uid}
	}
	call := mark(4, "ttnn::add", 0)
	call.PID = 7
	s := after(tensor(1, 7, 1, 0), mark(2, "warm", 1000), tensor(3, 7, 2, 0), call, mark(5, "hot", 1001))
	told := func(wanted func(int) bool) (list []string) {
		for e := range s.Freeze(wanted) {
			switch e.Kind {
			case event.Alloc:
				list = append(list, "alloc")
			case event.Mark:
				qt.Check(t, qt.IsTrue(e.BeforeAttach))
				list = append(list, fmt.Sprintf("%s at %d of %d", e.Cause, e.TimeNs, e.UID))
			}
		}
		return list
	}
	qt.Check(t, qt.DeepEquals(told(nil), []string{"alloc", "warm at 2 of 1000", "alloc", "hot at 5 of 1001"}))
	qt.Check(t, qt.DeepEquals(told(func(uid int) bool { return uid == 1001 }), []string{"hot at 5 of 1001"}))

	for i := range uint64(5000) {
		e := mark(10+i, fmt.Sprint(i), 0)
		s.Apply(&e)
	}
	got := told(nil)
	qt.Check(t, qt.HasLen(got, 1002)) // with the allocations
	qt.Check(t, qt.Equals(got[2], "4000 at 4010 of 0"))
	qt.Check(t, qt.Equals(got[1001], "4999 at 5009 of 0"))
}

func TestAFrozenCheckpointLeavesOutProcessesOfOthers(t *testing.T) {
	started := func(pid int) event.Event {
		return event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: 1000 + pid}
	}
	s := after(started(7), started(8), started(9), tensor(2, 7, 1, 0), tensor(2, 8, 1, 0), tensor(3, 9, 1, 0),
		cb(4, 8, 3, 1000, 100, 1, 1, 0), event.Event{TimeNs: 5, Kind: event.ProcessExit, PID: 9})
	seen := make(map[int]int)
	for e := range s.Freeze(func(uid int) bool { return uid == 1007 }) {
		seen[e.PID]++
	}
	delete(seen, 0)
	qt.Check(t, qt.IsTrue(seen[7] > 2))
	qt.Check(t, qt.HasLen(seen, 1), qt.Commentf("%v", seen))
}
