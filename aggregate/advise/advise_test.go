package advise

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/fuzztest"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// A program is events of a process on an N150, whose buffers in DRAM all have the same size.
type program struct {
	events []event.Event
	slots  []uint64 // the ids of the buffers, by address; 0: free
	stacks map[string]*event.Stack
}

const base, size = 1048640, 342 * 2048

func begin() *program {
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}, Open: new(event.Open)}
	open.Open.Capacities = [event.BankedRegions]event.Capacity{
		event.DRAM: {Banks: 12, Base: base, BytesPerBank: 1072693184}, event.Trace: {Banks: 12, Base: 1 << 30},
		event.L1: {Banks: 64, Base: 105824, BytesPerBank: 1393312}, event.L1Small: {Banks: 64, Base: 0x16e000},
	}
	return &program{
		events: []event.Event{{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)}, open}, stacks: make(map[string]*event.Stack),
	}
}

// at is the same stack for the same place. Line 9 is of a constructor.
func (p *program) at(op string, line int) *event.Stack {
	key := fmt.Sprint(op, line)
	if p.stacks[key] == nil {
		p.stacks[key] = pagetest.At("ttnn."+op, line, 90)
		if line == 9 {
			frames := p.stacks[key].Frames()
			frames[1].Name = "Model.__init__"
			p.stacks[key] = event.StackOf(frames)
		}
	}
	return p.stacks[key]
}

// ran is the stack of a run.
func (p *program) ran(op string, line int) *event.Stack {
	key := fmt.Sprint("run ", op, line)
	if p.stacks[key] == nil {
		p.stacks[key] = event.StackOf(append([]event.Frame{{Kind: event.Native, Name: "ttnn::device_operation::launch"}}, p.at(op, line).Frames()...))
	}
	return p.stacks[key]
}

func (p *program) add(e event.Event) *event.Event {
	e.TimeNs, e.PID, e.Devices = uint64(len(p.events)+1)*1e6, 7, []int{0}
	p.events = append(p.events, e)
	return &p.events[len(p.events)-1]
}

func (p *program) alloc(id uint64, op string, line int) *event.Event {
	slot := slices.Index(p.slots, 0)
	if slot < 0 {
		slot = len(p.slots)
		p.slots = append(p.slots, 0)
	}
	p.slots[slot] = id
	return p.add(event.Event{
		Kind: event.Alloc, Allocator: 1, Region: event.DRAM, BufferID: id, Address: base + uint64(slot)*size, BytesPerBank: size, SizeBytes: 8 << 20,
		Banks: 12, PageSizeBytes: 2048, Stack: p.at(op, line),
	})
}

// run runs an operation that uses buffers.
func (p *program) run(op string, line int, ids ...uint64) *event.Event {
	uses := new(event.Uses)
	for _, id := range ids {
		if slot := slices.Index(p.slots, id); slot >= 0 {
			uses.Arguments = append(uses.Arguments, uint32(base+slot*size))
		}
	}
	return p.add(event.Event{Kind: event.ProgramRun, ProgramID: uint64(line), Uses: uses, Stack: p.ran(op, line)})
}

func (p *program) free(ids ...uint64) {
	for _, id := range ids {
		p.slots[slices.Index(p.slots, id)] = 0
		p.add(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit})
	}
}

// op is an operation with a result.
func (p *program) op(op string, line int, result uint64, ids ...uint64) {
	p.alloc(result, op, line)
	p.run(op, line, append(ids, result)...)
}

func (p *program) play(handle func(*event.Event)) error {
	for i := range p.events {
		handle(&p.events[i])
	}
	return nil
}

func (p *program) advice(t *testing.T) *Advice {
	t.Helper()
	a, err := Of(p.play)
	qt.Assert(t, qt.IsNil(err))
	return a
}

// forward is a function whose residual is used by its first operation, and lives through the peak. middle runs before the peak.
func (p *program) forward(middle func()) {
	p.alloc(101, "empty", 31)
	p.op("add", 32, 102, 101)
	for i := range uint64(4) {
		p.op("relu", 34, 103+i, 102+i)
		p.free(102 + i)
	}
	middle()
	for i := range uint64(4) {
		p.op("add", 35, 107+i, 106)
	}
	p.free(107, 108, 109, 110, 106, 101)
}

func nothing() {}

// TestHeldAfterItsLastUse has the residual, and the peak without it.
func TestHeldAfterItsLastUse(t *testing.T) {
	p := begin()
	p.forward(nothing)
	a := p.advice(t)
	qt.Assert(t, qt.HasLen(a.Peaks, 1))
	peak := a.Peaks[0]
	qt.Check(t, qt.Equals(peak.Peak, 6*size))
	qt.Check(t, qt.Equals(peak.PeakRun, 8))
	qt.Assert(t, qt.HasLen(peak.Lines, 1))
	l := peak.Lines[0]
	qt.Check(t, qt.Equals(l.Stack, p.at("empty", 31)))
	qt.Check(t, qt.Equals(l.LastUse, p.ran("add", 32)))
	qt.Check(t, qt.Equals(l.PerBank, size))
	qt.Check(t, qt.Equals(l.Runs, 7))
	qt.Check(t, qt.Equals(l.Alone, Outcome{PerBank: 5 * size}))
	qt.Check(t, qt.Equals(peak.All, l.Alone))
	qt.Check(t, qt.DeepEquals(peak.Best, []Outcome{l.Alone}))
	qt.Check(t, qt.Equals(peak.NotJudged, [NumReasons]memory.Amount{}))
}

// TestBuffersOfALineWithDifferentLastUses are told apart: each has the use after which it can be freed.
func TestBuffersOfALineWithDifferentLastUses(t *testing.T) {
	p := begin()
	p.alloc(1, "empty", 20)
	p.alloc(2, "empty", 20)
	p.run("exp", 21, 1)
	p.run("add", 22, 2)
	p.forward(nothing)
	p.free(1, 2)
	lines := p.advice(t).Peaks[0].Lines
	qt.Assert(t, qt.HasLen(lines, 3))
	var uses []*event.Stack
	for _, l := range lines {
		qt.Check(t, qt.Equals(l.Count, 1))
		qt.Check(t, qt.Equals(l.Alone, Outcome{PerBank: 7 * size}))
		if l.Stack == p.at("empty", 20) {
			uses = append(uses, l.LastUse)
		}
	}
	qt.Check(t, qt.IsTrue(slices.Equal(uses, []*event.Stack{p.ran("exp", 21), p.ran("add", 22)})))
}

// TestTheBestLinesTogether: the peak without one line is elsewhere; without both it is lower.
func TestTheBestLinesTogether(t *testing.T) {
	p := begin()
	p.alloc(1, "empty", 20)
	p.alloc(2, "empty", 20)
	p.alloc(3, "empty", 21)
	p.run("exp", 22, 1, 2, 3)
	p.forward(nothing)
	p.free(1, 2, 3)
	peak := p.advice(t).Peaks[0]
	qt.Check(t, qt.Equals(peak.Peak, 9*size))
	qt.Check(t, qt.Equals(peak.Held.Bytes, 4*size))
	qt.Check(t, qt.DeepEquals(peak.Best, []Outcome{{PerBank: 7 * size}, {PerBank: 6 * size}, {PerBank: 5 * size}}))
	qt.Check(t, qt.Equals(peak.Lines[1].Alone, Outcome{PerBank: 8 * size}))
	qt.Check(t, qt.Equals(peak.All, Outcome{PerBank: 5 * size}))
}

// TestNeverAccused has buffers that are needed, or may be, and why they are not judged: NumReasons if they are in use.
func TestNeverAccused(t *testing.T) {
	for name, c := range map[string]struct {
		program func(p *program)
		why     Reason
	}{
		"weight to the end": {func(p *program) { p.alloc(1, "as_tensor", 5); p.run("exp", 6, 1); p.forward(nothing) }, Survives},
		"page of a cache that is not needed yet": {func(p *program) {
			p.alloc(1, "empty", 5)
			p.forward(nothing)
			p.run("exp", 6)
		}, Unfilled},
		"weight of several iterations": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			for range 3 {
				p.run("linear", 6, 1)
				p.forward(nothing)
			}
			p.free(1)
		}, NumReasons},
		"weight, peak in the last iteration": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			for i := range 3 {
				p.run("linear", 6, 1)
				if i < 2 {
					for j := range uint64(9) {
						p.op("exp", 7, 200+j)
						p.free(200 + j)
					}
				}
			}
			p.forward(nothing)
			p.free(1)
		}, Periodic},
		"weight of a constructor": {func(p *program) { p.alloc(1, "as_tensor", 9); p.run("exp", 6, 1); p.forward(nothing); p.free(1) }, Constructed},
		"weight of one pass that the host writes": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			p.add(event.Event{Kind: event.BufferWrite, BufferID: 1, Stack: p.at("as_tensor", 5)})
			p.run("exp", 6, 1)
			p.forward(nothing)
			p.free(1)
		}, Loaded},
		"weight in another layout": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			p.add(event.Event{Kind: event.BufferWrite, BufferID: 1, Stack: p.at("as_tensor", 5)})
			p.op("to_layout", 6, 2, 1)
			p.free(1)
			p.run("exp", 7, 2)
			p.forward(nothing)
			p.free(2)
		}, Loaded},
		"result that the host reads": {func(p *program) {
			p.op("exp", 6, 1)
			p.forward(nothing)
			p.add(event.Event{Kind: event.BufferRead, BufferID: 1, Stack: p.at("from_device", 60)})
			p.free(1)
		}, NumReasons},
		"state of the next iteration": {func(p *program) {
			for i := range uint64(3) {
				p.op("exp", 6, i+1)
				if i > 0 {
					p.run("tanh", 7, i)
					p.free(i)
				}
			}
			p.forward(nothing)
			p.free(3)
		}, Periodic},
		"from before the attach": {func(p *program) { p.alloc(1, "as_tensor", 5).BeforeAttach = true; p.forward(nothing); p.free(1) }, Before},
		"used by a run that is not recorded": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			p.run("exp", 6, 1)
			p.forward(func() { p.run("exp", 6).Uses = nil })
			p.free(1)
		}, Unknown},
		"lost events": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			p.forward(func() { p.add(event.Event{Kind: event.Lost, Count: 3}) })
			p.free(1)
		}, Unknown},
		"used by a captured trace": {func(p *program) {
			p.alloc(1, "as_tensor", 5)
			p.add(event.Event{Kind: event.TraceBegin, ProgramID: 1})
			p.run("exp", 6, 1)
			p.add(event.Event{Kind: event.TraceEnd, ProgramID: 1})
			p.forward(nothing)
			p.add(event.Event{Kind: event.TraceReplay, ProgramID: 1})
			p.free(1)
		}, NumReasons},
		"not used for a short time": {func(p *program) { p.forward(func() { p.alloc(1, "empty", 5) }); p.free(1) }, NumReasons},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin()
			c.program(p)
			peak := p.advice(t).Peaks[0]
			for _, l := range peak.Lines {
				qt.Check(t, qt.Equals(l.Stack, p.at("empty", 31)), qt.Commentf("%+v", l))
			}
			for why, n := range peak.NotJudged {
				if c.why == Unknown || c.why == Before && Reason(why) == Before {
					continue
				}
				qt.Check(t, qt.Equals(n.Count > 0, Reason(why) == c.why), qt.Commentf("%d", why))
			}
			if c.why < NumReasons {
				qt.Check(t, qt.IsTrue(peak.NotJudged[c.why].Count > 0))
			}
		})
	}
}

// TestNeverUsed: what is used late is named, too, as long as it is not live to the end.
func TestNeverUsed(t *testing.T) {
	p := begin()
	p.alloc(1, "empty", 5)
	p.alloc(2, "empty", 6)
	p.forward(func() {
		for range 9 {
			p.run("exp", 7, 106)
		}
	})
	p.run("exp", 8, 2)
	p.free(1, 2)
	peak := p.advice(t).Peaks[0]
	qt.Assert(t, qt.HasLen(peak.Lines, 2))
	unused := peak.Lines[slices.IndexFunc(peak.Lines, func(l *Line) bool { return l.Unused })]
	qt.Check(t, qt.Equals(unused.Stack, p.at("empty", 5)))
	qt.Check(t, qt.Equals(unused.Alone, Outcome{PerBank: 7 * size}))
	qt.Assert(t, qt.HasLen(peak.Early, 1))
	qt.Check(t, qt.Equals(peak.Early[0].Stack, p.at("empty", 6)))
	qt.Check(t, qt.Equals(peak.Early[0].Runs, 17))
}

// TestInputs that the host writes again and again are held after their last use, and the last one may be a weight.
func TestInputs(t *testing.T) {
	p := begin()
	for i := range uint64(3) {
		p.alloc(i+1, "as_tensor", 5)
		p.add(event.Event{Kind: event.BufferWrite, BufferID: i + 1, Stack: p.at("as_tensor", 5)})
		p.run("exp", 6, i+1)
		if i == 1 {
			p.forward(nothing)
		}
		p.free(i + 1)
	}
	peak := p.advice(t).Peaks[0]
	qt.Assert(t, qt.HasLen(peak.Lines, 2))
	qt.Check(t, qt.IsTrue(slices.ContainsFunc(peak.Lines, func(l *Line) bool { return l.Stack == p.at("as_tensor", 5) })))
}

// TestIdle is a skip connection: used before and long after the peak. It is not idle if it may have been used meanwhile.
func TestIdle(t *testing.T) {
	for _, test := range []struct{ runs, idle int }{{30, 0}, {40, 1}, {-40, 0}} {
		p := begin()
		p.op("exp", 20, 1)
		p.op("add", 21, 2, 1)
		for i := range max(test.runs, -test.runs) {
			p.op("relu", 22, uint64(3+i%2), 2)
			if p.free(uint64(3 + i%2)); i == 20 && test.runs < 0 {
				p.add(event.Event{Kind: event.ProgramRun, ProgramID: 5, Stack: p.ran("relu", 23)})
			}
			if i == 10 {
				p.alloc(50, "empty", 24)
				p.alloc(51, "empty", 24)
				p.free(50, 51)
			}
		}
		p.free(2)
		p.op("concat", 25, 60, 1)
		p.free(1)
		peak := p.advice(t).Peaks[0]
		qt.Assert(t, qt.HasLen(peak.Idle, test.idle), qt.Commentf("%d", test.runs))
		for _, l := range peak.Idle {
			qt.Check(t, qt.Equals(l.Stack, p.at("exp", 20)))
			qt.Check(t, qt.Equals(l.LastUse, p.ran("add", 21)))
			qt.Check(t, qt.Equals(l.NextUse, p.ran("concat", 25)))
			qt.Check(t, qt.Equals(l.Runs, uint32(test.runs+1)))
		}
	}
}

// TestResultsOfOperations are not allocated too early.
func TestResultsOfOperations(t *testing.T) {
	p := begin()
	p.alloc(2, "exp", 6).Stack = p.ran("exp", 6)
	p.run("exp", 6, 2)
	p.forward(nothing)
	p.run("exp", 8, 2)
	p.free(2)
	qt.Check(t, qt.HasLen(p.advice(t).Peaks[0].Early, 0))
}

// TestNotProved: the reason is that of the replay.
func TestNotProved(t *testing.T) {
	p := begin()
	p.events[0].Start = &event.Start{AttachedLate: true}
	p.alloc(1, "empty", 5).BeforeAttach = true
	p.forward(nothing)
	peak := p.advice(t).Peaks[0]
	qt.Assert(t, qt.HasLen(peak.Lines, 1))
	qt.Check(t, qt.Equals(peak.Lines[0].Alone.Doubt, "1 allocations are not predicted (before the attach)"))
}

// TestARefusedRunUsesNothing.
func TestARefusedRunUsesNothing(t *testing.T) {
	p := begin()
	p.forward(func() {
		p.run("exp", 50, 101)
		p.add(event.Event{Kind: event.AllocFailed, Region: event.CB, ProgramID: 50, Reason: event.ReasonStaticClash})
	})
	l := p.advice(t).Peaks[0].Lines
	qt.Assert(t, qt.HasLen(l, 1))
	qt.Check(t, qt.Equals(l[0].LastUse, p.ran("add", 32)))
	qt.Check(t, qt.Equals(l[0].Runs, 7))
}

// TestAnOperationOfSeveralPrograms holds its inputs until it returns.
func TestAnOperationOfSeveralPrograms(t *testing.T) {
	p := begin()
	p.alloc(1, "empty", 20)
	p.alloc(2, "mean", 21)
	p.run("mean", 21, 1, 2)
	inner := p.alloc(3, "mean", 21)
	inner.Stack = event.StackOf(append([]event.Frame{{Kind: event.Native, Name: "ttnn::sum"}}, inner.Stack.Frames()...))
	p.run("mean", 21, 2, 3).Stack = inner.Stack
	p.run("exp", 22, 2, 3)
	p.free(1, 2, 3)
	peak := p.advice(t).Peaks[0]
	qt.Check(t, qt.Equals(peak.Peak, 3*size))
	qt.Check(t, qt.HasLen(peak.Lines, 0)) // the peak is within the call
}

// layers is a program of n operations, each with a result that the one after the next frees.
func layers(n int) *program {
	p := begin()
	p.alloc(1, "empty", 5)
	for i := range uint64(n) {
		p.op("relu", 10+int(i%20), i+2, i+1)
		if i > 0 {
			p.free(i)
		}
	}
	return p
}

// TestTheCostIsProportional to the number of runs.
func TestTheCostIsProportional(t *testing.T) {
	fuzztest.Proportional(t, 10_000, func(n int) { layers(n).advice(t) })
}

func BenchmarkAMillionRuns(b *testing.B) {
	p := layers(1_000_000)
	for b.Loop() {
		Of(p.play)
	}
}
