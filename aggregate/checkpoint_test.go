package aggregate_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/fuzztest"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// restored is a new State after the checkpoint of s.
func restored(t *testing.T, s *aggregate.State) *aggregate.State {
	t.Helper()
	fresh := aggregate.New()
	fresh.Apply(s.Checkpoint())
	return fresh
}

// known is all that a State tells, as text.
func known(t *testing.T, s *aggregate.State) string {
	t.Helper()
	text, err := json.Marshal(s.Snapshot())
	qt.Assert(t, qt.IsNil(err))
	var b strings.Builder
	b.Write(bytes.ReplaceAll(text, []byte(","), []byte(",\n")))
	for _, d := range s.Snapshot().Devices {
		fmt.Fprintf(&b, "\n%v", d.Failures)
	}
	for _, h := range s.Buffers() {
		one := *h.Allocation
		one.CoreSet = nil
		fmt.Fprintf(&b, "\n%+v %+v %v %d %+v", *h.Site, one, h.Cores(), h.Allocator, h.Owner)
	}
	for id := range modelChips {
		for _, c := range s.Statics(id) {
			fmt.Fprintf(&b, "\n%+v", c)
		}
	}
	for _, p := range s.RegionPeaks() {
		line, static := p.Timeline, p.StaticTimeline
		p.Timeline, p.StaticTimeline = nil, nil
		fmt.Fprintf(&b, "\n%+v\n%+v\n%+v", p, *line, *static)
	}
	for _, h := range s.CallSites() {
		fmt.Fprintf(&b, "\n%+v", h)
	}
	survivors, others := s.Survivors()
	var lines []string
	for _, v := range survivors { // in no order
		lines = append(lines, fmt.Sprintf("\n%d %s %s %p %d %d %v %+v %+v %d %d %d %d %+v", v.PID, v.Comm, v.Command, v.Stack,
			v.Region, v.Layout, v.Devices, v.Amount, v.FreedAtTeardown, v.AgeNs, v.Allocated, v.WorkedFromNs, v.WorkedToNs, v.Run))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	fmt.Fprintf(&b, "\n%+v %d", others, s.BuffersAllocated())
	temporary, others := s.Temporary()
	lines = nil
	for _, one := range temporary {
		lines = append(lines, fmt.Sprintf("\n%d %p %d %v %+v", one.PID, one.Stack, one.Region, one.Devices, one.Amount))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	fmt.Fprintf(&b, "\n%+v", others)
	ran, more := s.Operations()
	fmt.Fprintf(&b, "\n%d", more)
	for _, op := range ran {
		fmt.Fprintf(&b, "\n%+v", op)
	}
	for _, buffer := range s.Buffers() {
		use, runs, known := s.UseOf(buffer.PID, buffer.BufferID)
		fmt.Fprintf(&b, "\n%d %d %+v %d %v", buffer.PID, buffer.BufferID, use, runs, known)
	}
	x := s.Index()
	fmt.Fprintf(&b, "\n%d %d %+v %v %d %v %d", s.Number(), x.First, x.Begin, x.Failures, x.FailuresFrom, x.Peaks, x.MarksFrom)
	for i := range x.Marks {
		fmt.Fprintf(&b, "\n%+v", x.Marks[i])
	}
	profile := s.Profile()
	for _, sample := range profile.Samples {
		fmt.Fprintf(&b, "\n%+v", sample)
	}
	fmt.Fprintf(&b, "\n%+v %+v", profile.Processes, profile.Peaks)
	for _, f := range s.Snapshot().Failures {
		if f.Evidence != nil {
			fmt.Fprintf(&b, "\n%+v", *f.Evidence)
		}
		f.Evidence = nil
		fmt.Fprintf(&b, "\n%+v", f)
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
			from := max(0, i-3)
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
	if r.IntN(12) == 0 {
		return randomTrace(r, e)
	}
	e.BeforeAttach = r.IntN(5) == 0
	e.TID, e.Object = e.PID+r.IntN(2), r.Uint64N(100)
	e.Comm = []string{"", "python3", "worker"}[r.IntN(3)]
	switch r.IntN(30) {
	case 0, 1:
		e.Kind = event.DeviceOpen
		e.Open = new(event.Open)
		e.Open.Board, e.Open.Arch = []string{"", "n150", "n300"}[r.IntN(3)], []string{"", "wormhole_b0"}[r.IntN(2)]
		if r.IntN(4) > 0 {
			for region := range e.Open.Capacities {
				e.Open.Capacities[region] = event.Capacity{Banks: 4, BytesPerBank: (1 + r.Uint64N(3)) * 100}
			}
		}
	case 2:
		e.Kind, e.Message, e.Reason = event.AllocFailed, "no", event.ReasonOutOfMemory
	case 3:
		e.Kind, e.Cause, e.Count = event.Lost, []string{"a", "b"}[r.IntN(2)], r.Uint64N(5)
		if r.IntN(3) == 0 {
			e.Kind = event.Reread
		}
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
	case 9, 10:
		e = randomRun(r, e)
	case 12:
		e.Kind = []event.Kind{event.BufferWrite, event.BufferRead}[r.IntN(2)]
	case 11:
		e.Kind, e.SizeBytes, e.BytesPerBank = event.HostMemory, r.Uint64N(1<<30), r.Uint64N(1<<30)
	case 8:
		e = event.Event{TimeNs: now, Kind: event.Mark, Cause: fmt.Sprint("mark ", now), UID: 1000 + r.IntN(3)}
		if r.IntN(3) == 0 { // of a process
			e.PID, e.UID = 7, 0
		}
	}
	if e.Kind == event.ProcessStart {
		e.Start = new(event.Start)
		e.Start.Command, e.Start.Library, e.Start.Release = fmt.Sprint("run ", now), "/lib/libtt_metal.so", "0.81.1"
		e.UID, e.Start.Container, e.Start.Pod, e.Start.ContainerPID = 1000+e.PID, "0123456789abcdef", "pod", r.IntN(9)
		e.Start.AttachedLate = r.IntN(2) == 0
	}
	return e
}

func TestACheckpointRestoresTheWholeState(t *testing.T) {
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
	qt.Check(t, qt.Equals(snap.Failures[0].UID, 1)) // of each user as many
	qt.Check(t, qt.Equals(snap.Failures[len(snap.Failures)-1].UID, 300))
	checkSame(t, second, s, qt.Commentf(""))
}

func TestACheckpointKeepsPeaksOfUnusedChips(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0), tensor(3, 7, 2, 0), event.Event{TimeNs: 4, Kind: event.ProcessExit, PID: 7})
	dram := device(t, restored(t, s), 0).Regions.DRAM
	qt.Check(t, qt.Equals(dram.PeakBytes, 2*540672))
	qt.Check(t, qt.Equals(dram.PeakTimeNs, 3))
	qt.Check(t, qt.Equals(dram.PeakCapacityBytes, 12*wormholeDRAM))
	qt.Check(t, qt.Equals(dram.CapacityBytes, 12*wormholeDRAM))
}

// TestAFrozenCheckpointDoesNotChangeWithTheState: a checkpoint has the state at
// the time when it was made, whatever changes later. The race detector runs with it.
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
		want := s.Checkpoint()
		frozen := s.Freeze(nil)
		made := make(chan *event.Event)
		go func() { made <- frozen() }()
		for range 3000 {
			step()
		}
		qt.Assert(t, qt.DeepEquals((<-made).State.Data, want.State.Data), qt.Commentf("seed %d", seed))
	}
}

// TestACheckpointOfACheckpointIsTheSame, byte for byte.
func TestACheckpointOfACheckpointIsTheSame(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 6))
		s := aggregate.New()
		for now := range uint64(3000) {
			e := fullEvent(r, now)
			s.Apply(&e)
		}
		want := s.Checkpoint().State
		got := restored(t, s).Checkpoint().State
		qt.Check(t, qt.DeepEquals(got.Data, want.Data))
		qt.Check(t, qt.IsTrue(slices.Equal(got.Stacks, want.Stacks)))
	}
}

// TestAFrozenCheckpointLeavesOutWhatIsOfOthers: processes, marks, failures, and what they
// take of the chips.
func TestAFrozenCheckpointLeavesOutWhatIsOfOthers(t *testing.T) {
	started := func(pid int) event.Event {
		return event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: 1000 + pid, Start: &event.Start{Command: fmt.Sprintf("secret %d", pid)}}
	}
	mark := func(uid int) event.Event {
		return event.Event{TimeNs: 2, Kind: event.Mark, Cause: fmt.Sprintf("secret mark %d", uid), UID: uid}
	}
	failed := func(pid int) event.Event {
		return event.Event{TimeNs: 5, Kind: event.AllocFailed, PID: pid, Region: event.L1, Message: fmt.Sprintf("secret failure %d", pid)}
	}
	secret := func(pid int, e event.Event) event.Event {
		e.Stack = event.StackOf([]event.Frame{{Kind: event.Python, Name: fmt.Sprintf("secret call %d", pid)}})
		return e
	}
	const shared = 1 << 40
	s := after(started(7), started(8), started(9), wormhole(1, 7, 1, 0), wormhole(1, 8, 1, 0),
		secret(7, tensor(2, 7, 1, 0)), secret(8, tensor(2, 8, 1, 0)), secret(9, tensor(3, 9, 1, 0)), mark(1007), mark(1008),
		secret(8, cb(4, 8, 3, 1000, 100, 1, 1, 0)), secret(8, cb(4, 8, 4, shared, 300, 1, 1, 0)), failed(7), failed(8), endCBs(5, 8, 4),
		event.Event{TimeNs: 5, Kind: event.ProcessExit, PID: 9})
	e := s.Freeze(func(uid int) bool { return uid == 1007 })()
	qt.Check(t, qt.IsFalse(bytes.Contains(e.State.Data, []byte("secret 8"))))
	qt.Check(t, qt.IsFalse(bytes.Contains(e.State.Data, []byte("secret 9"))))
	qt.Check(t, qt.IsFalse(bytes.Contains(e.State.Data, []byte("secret mark 1008"))))
	qt.Check(t, qt.IsFalse(bytes.Contains(e.State.Data, []byte("secret failure 8"))))
	qt.Check(t, qt.IsFalse(bytes.Contains(e.State.Data, binary.AppendUvarint(nil, shared))))
	qt.Check(t, qt.IsFalse(bytes.Contains(e.State.Data, binary.AppendVarint(nil, 1008))))
	qt.Check(t, qt.IsTrue(bytes.Contains(e.State.Data, binary.AppendVarint(nil, 1007))))
	qt.Assert(t, qt.HasLen(e.State.Stacks, 1))
	qt.Check(t, qt.Equals(e.State.Stacks[0].Frames()[0].Name, "secret call 7"))

	mine := aggregate.New()
	mine.Apply(e)
	snap := mine.Snapshot()
	qt.Check(t, qt.Equals(snap.Anomalies, memory.Anomalies{}))
	qt.Assert(t, qt.HasLen(snap.Processes, 1))
	qt.Check(t, qt.Equals(snap.FailureCount, 1))
	qt.Check(t, qt.Equals(snap.ExitedProcesses, 0))
	dram := device(t, mine, 0).Regions.DRAM
	qt.Check(t, qt.Equals(dram.AllocatedBytes, 540672))
	qt.Check(t, qt.Equals(dram.PeakBytes, 3*540672)) // of all, as in a snapshot
	qt.Check(t, qt.Equals(dram.CapacityBytes, 12*wormholeDRAM))
	peak := mine.RegionPeaks()[0]
	qt.Check(t, qt.HasLen(peak.Holders, 1))
	qt.Check(t, qt.Equals(peak.OthersBytes, 2*540672))
	qt.Check(t, qt.HasLen(mine.RegionPeaks()[1].Programs, 0))
	qt.Check(t, qt.Equals(mine.RegionPeaks()[1].OthersStaticBytes, 300))
	for pid := 8; pid < 10; pid++ {
		mine.Apply(&event.Event{TimeNs: 6, Kind: event.ProcessStart, PID: pid})
	}
	qt.Check(t, qt.HasLen(mine.Snapshot().Processes, 3))
}

func TestADamagedCheckpointChangesNothing(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0))
	of := after(wormhole(1, 7, 1, 0), cb(4, 7, 3, 1000, 100, 1, 1, 0), tensor(2, 7, 2, 0)).Checkpoint().State
	for i := range of.Data {
		qt.Check(t, qt.IsNotNil(s.Restore(&event.State{Data: of.Data[:i], Stacks: of.Stacks})))
	}
	qt.Check(t, qt.IsNotNil(s.Restore(nil)))
	checkSame(t, s, after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0)), qt.Commentf(""))
	qt.Check(t, qt.IsNil(s.Restore(of)))
}

// TestACheckpointThatClaimsTooMuchIsNotRead: a failure of 18 bytes takes 208 in memory, and 18 bytes of zeros next to nothing
// in a file.
func TestACheckpointThatClaimsTooMuchIsNotRead(t *testing.T) {
	empty := aggregate.New().Checkpoint().State.Data
	before := codec.NewWriter() // what comes before the failures
	before.Data = append(before.Data, empty[0])
	before.Data = append(before.Data, make([]byte, 8)...)
	before.Value(new(memory.Anomalies))
	before.Data = append(before.Data, 0)
	before.Value(new(memory.Point))
	before.Data = append(before.Data, make([]byte, 1+2*3)...)
	qt.Assert(t, qt.IsTrue(bytes.HasPrefix(empty, before.Data)))
	failure := codec.NewWriter()
	failure.Value(new(memory.Failure))
	claims := func(n int) *event.State {
		c := codec.NewWriter()
		c.Data = append(slices.Clone(before.Data), 0, 0)
		c.Length(n)
		c.Data = append(c.Data, bytes.Repeat(failure.Data, n)...)
		return &event.State{Data: append(c.Data, empty[len(before.Data)+3:]...)}
	}
	s := aggregate.New()
	qt.Assert(t, qt.IsNil(s.Restore(claims(1000))))
	qt.Check(t, qt.HasLen(s.Snapshot().Failures, 1000))
	many := claims(1_000_000)
	fuzztest.Bounded(t, len(many.Data), 0, func() { qt.Check(t, qt.IsNotNil(s.Restore(many))) })
}

// TestACheckpointOfManyProcesses: the call sites of all cost nothing for each.
func TestACheckpointOfManyProcesses(t *testing.T) {
	s := aggregate.New()
	for pid := range 2000 {
		e := tensor(1, 1+pid, 1, 0)
		s.Apply(&e)
	}
	var c *event.Event
	fuzztest.Bounded(t, 0, 0, func() { c = s.Checkpoint() })
	fuzztest.Bounded(t, len(c.State.Data), 0, func() { qt.Check(t, qt.IsNil(aggregate.New().Restore(c.State))) })
}

// FuzzRestore: whatever is read, nothing panics, and what was accepted can be used.
func FuzzRestore(f *testing.F) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := aggregate.New()
		for now := range 20 + 40*seed {
			e := fullEvent(r, now)
			s.Apply(&e)
		}
		f.Add(s.Checkpoint().State.Data, seed)
		f.Add(s.Freeze(func(uid int) bool { return uid%2 == 0 })().State.Data, seed)
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		s := aggregate.New()
		var err error
		fuzztest.Bounded(t, len(data), 1000, func() { err = s.Restore(&event.State{Data: data, Stacks: stacks}) })
		if err != nil {
			return
		}
		known(t, s)
		r := rand.New(rand.NewPCG(seed, 8))
		for now := range uint64(100) {
			e := fullEvent(r, now)
			s.Apply(&e)
		}
		known(t, s)
		restored(t, s)
	})
}

// TestStacksThatBecomeEqual: the frames of two stacks may be the same, so that a recording has them as
// one stack. A checkpoint still has the buffers and the operations of both.
func TestStacksThatBecomeEqual(t *testing.T) {
	stack := func(id uint64) *event.Stack {
		return event.NewStack(id, func() []*event.Call {
			return []*event.Call{event.NewCall([]event.Frame{{Kind: event.Python, Name: "f"}})}
		})
	}
	s := after(started(7, 1), wormhole(2, 7, 0, 0))
	for id := range uint64(4) {
		e := tensor(3+id, 7, id, 0)
		e.Stack = stack(11 + 2*(id%2))
		run := event.Event{TimeNs: 3 + id, Kind: event.ProgramRun, PID: 7, Devices: []int{0}, ProgramID: id, Stack: e.Stack}
		s.Apply(&e)
		s.Apply(&run)
	}
	c := s.Checkpoint()
	for i := range c.State.Stacks {
		c.State.Stacks[i] = stack(11)
	}
	read := aggregate.New()
	qt.Assert(t, qt.IsNil(read.Restore(c.State)))
	read = restored(t, read)
	qt.Check(t, qt.HasLen(read.Buffers(), 4))
	live := func(s *aggregate.State) memory.Device { return device(t, s, 0) }
	qt.Check(t, qt.DeepEquals(live(read).Regions, live(s).Regions))
	for id := range uint64(4) {
		e := free(20, 7, id)
		read.Apply(&e)
	}
	again := tensor(30, 7, 9, 0)
	again.Stack = stack(11)
	read.Apply(&again)
	qt.Check(t, qt.Equals(live(read).Regions.DRAM.Buffers, 1))
}
