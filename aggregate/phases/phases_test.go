package phases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// run is a program whose events divide it into phases.
type run struct {
	state  *aggregate.State
	tree   *Tree
	handle func(*event.Event)
	ns, id uint64
}

func newRun() *run {
	r := &run{state: aggregate.New(), ns: 100}
	r.tree = New(r.state)
	r.handle = r.state.Completed(r.tree.Event)
	r.event(event.Event{Kind: event.ProcessStart})
	r.event(event.Event{Kind: event.DeviceOpen, Devices: []int{0}, Allocator: 1, Open: &event.Open{
		Capacities: [event.BankedRegions]event.Capacity{event.DRAM: {Banks: 2, BytesPerBank: 1 << 20}, event.L1: {Banks: 4, BytesPerBank: 1 << 16}},
	}})
	return r
}

func (r *run) event(e event.Event) {
	r.ns += 10
	if e.TimeNs, e.PID = r.ns, 7; e.TID == 0 {
		e.TID = 7
	}
	r.handle(&e)
}

// at is a call stack: "train.py:3 <module>" first, innermost last.
func at(calls ...string) *event.Stack {
	frames := []event.Frame{{Kind: event.Native, Name: "ttnn::add"}}
	for i := range calls {
		f := event.Frame{Kind: event.Python, File: "/home/u/train.py"}
		_, _ = fmt.Sscanf(strings.Replace(calls[len(calls)-1-i], "<module>", "module", 1), "%d %s", &f.Line, &f.Name)
		if f.Name == "module" {
			f.Name = "<module>"
		}
		frames = append(frames, f)
	}
	frames = append(frames, event.Frame{Kind: event.Python, File: "/usr/lib/python3.10/runpy.py", Name: "run", Line: 9})
	return event.StackOf(frames)
}

// alloc allocates a buffer of DRAM with that many bytes in each of two banks.
func (r *run) alloc(perBank uint64, stack *event.Stack) uint64 {
	r.id++
	r.event(event.Event{
		Kind: event.Alloc, BufferID: r.id, Allocator: 1, Devices: []int{0}, Region: event.DRAM, SizeBytes: 2 * perBank, BytesPerBank: perBank, Banks: 2, Stack: stack,
	})
	return r.id
}

func (r *run) free(id uint64) { r.event(event.Event{Kind: event.Free, BufferID: id}) }

// text is a line for each phase: times, peak of DRAM, bytes left.
func text(list []*Phase, indent string) (lines []string) {
	for _, f := range list {
		lines = append(lines, fmt.Sprintf("%s%s ×%d peak %d left %d", indent, f, f.Entered, f.Peaks[event.DRAM].Bytes, f.Left.Bytes))
		lines = append(lines, text(f.Inner, indent+"  ")...)
	}
	return lines
}

// TestPhasesOfATrainingLoop: forward leaves its activations, and backward its gradients, whose memory
// grows while the activations are live; what is freed after a call counts with it.
func TestPhasesOfATrainingLoop(t *testing.T) {
	r := newRun()
	weight := r.alloc(1000, at("4 <module>", "2 load"))
	for range 3 {
		a, b := r.alloc(100, at("8 <module>", "12 forward")), r.alloc(100, at("8 <module>", "13 forward"))
		temporary := r.alloc(10, at("9 <module>", "20 backward", "30 <listcomp>"))
		r.free(temporary)
		gradient := r.alloc(50, at("9 <module>", "21 backward"))
		r.free(a)
		r.free(b)
		updated := r.alloc(1000, at("10 <module>", "40 step"))
		r.free(weight)
		r.free(gradient)
		weight = updated
	}
	qt.Check(t, qt.DeepEquals(text(r.tree.End(), ""), strings.Split(strings.TrimSpace(`
train.py:4 load() ×1 peak 2000 left 2000
  train.py:2 load ×1 peak 2000 left 2000
train.py:8 forward() ×3 peak 2400 left 400
  train.py:12 forward ×3 peak 2200 left 200
  train.py:13 forward ×3 peak 2400 left 200
train.py:9 backward() ×3 peak 2500 left 100
  train.py:20 backward ×3 peak 2420 left 0
  train.py:21 backward ×3 peak 2500 left 100
train.py:10 step() ×3 peak 4100 left 2000
  train.py:40 step ×3 peak 4100 left 2000`), "\n")))
}

// TestTimesOfPhases: a phase lasts to the first event of the next one, and the last one to the last event.
func TestTimesOfPhases(t *testing.T) {
	r := newRun()
	r.alloc(1, at("4 <module>", "2 load")) // at 130 ns
	r.free(r.alloc(1, at("5 <module>", "2 load")))
	r.event(event.Event{Kind: event.ProgramRun, Devices: []int{0}, ProgramID: 3, Stack: at("6 <module>", "9 run")})
	r.event(event.Event{Kind: event.ProcessExit})
	var ns []uint64
	for _, f := range r.tree.End() {
		ns = append(ns, f.FirstNs, f.TimeNs)
	}
	qt.Check(t, qt.DeepEquals(ns, []uint64{130, 10, 140, 20, 160, 10}))
}

// TestOtherThreadsCountInThePhase: a worker thread divides nothing, and its memory counts.
func TestOtherThreadsCountInThePhase(t *testing.T) {
	r := newRun()
	r.alloc(1, at("4 <module>", "2 load"))
	r.id++
	r.event(event.Event{
		Kind: event.Alloc, TID: 8, BufferID: r.id, Allocator: 1, Devices: []int{0}, Region: event.DRAM, SizeBytes: 10, BytesPerBank: 5, Banks: 2, Stack: at("70 worker"),
	})
	list := r.tree.End()
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Peaks[event.DRAM], Peak{12, 140, 0}))
	qt.Check(t, qt.Equals(list[0].Left.Bytes, 12))
}

// TestTeardownLeavesWhatItEnds: buffers that end with their device were left by their phase.
func TestTeardownLeavesWhatItEnds(t *testing.T) {
	r := newRun()
	r.alloc(4, at("4 <module>", "2 load"))
	r.event(event.Event{Kind: event.DeviceClose, Devices: []int{0}, Allocator: 1})
	list := r.tree.End()
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Left.Bytes, 8))
}

// TestPhasesAreBounded: a program with endless different calls has no more than maxPhases.
func TestPhasesAreBounded(t *testing.T) {
	r := newRun()
	for i := range maxPhases + 10 {
		r.free(r.alloc(1, at(fmt.Sprintf("%d <module>", i+1))))
	}
	qt.Check(t, qt.HasLen(r.tree.End(), maxPhases))
	qt.Check(t, qt.IsTrue(r.tree.Full))
}
