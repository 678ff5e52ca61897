// Package phases divides a run by the outermost calls of the user's own code: which line of the main
// script, and which function that it called, was running when memory was allocated and programs ran.
// It is not part of ttmem's Go library: it changes without notice.
package phases

import (
	"cmp"
	"path"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

const (
	// maxDepth is the number of nested calls that are told apart.
	maxDepth = 8
	// maxChips is the number of chips of a process whose use is followed when a phase begins.
	maxChips = 64
	// maxPhases bounds the phases of a Tree. Further ones count in the call that they are in.
	maxPhases = 1 << 14
)

// A Phase is a call: a line of the user's own code, and the function that it calls.
type Phase struct {
	step
	PID int
	// Entered is how often it began after another phase. A loop around one phase alone is one time.
	Entered int
	// FirstNs is when it first began, and TimeNs how long it ran in all. A phase lasts to the first event
	// of the next one.
	FirstNs, TimeNs uint64
	// Peaks are the highest use of each region during the phase, by all processes on the chip.
	Peaks [event.BankedRegions]Peak
	// Left counts the buffers that its latest time allocated and that were live when that ended, with the
	// bytes on all chips, and MostLeft is the most of any time.
	Left, MostLeft memory.Amount
	// Inner are the phases of its calls, in the order of their beginnings.
	Inner []*Phase

	bySteps map[step]*Phase
	beganNs uint64
	// left is Left so far, of the present time.
	left memory.Amount
}

// A Peak is the use of a region of a chip: for L1 on the fullest core, else in all banks.
type Peak struct {
	Bytes, TimeNs uint64
	Device        int
}

// A step is a call on the way from the main script inward.
type step struct {
	// Call is the line, with the function that it is in.
	Call name.Call
	// Function is the function that it calls; "" if the line itself allocates or runs programs.
	Function string
}

// A Tree has the phases of all processes.
type Tree struct {
	state *aggregate.State
	count int
	// Full is true if there were more phases than are kept.
	Full      bool
	processes map[int]*process
	stacks    stacks
	nowNs     uint64
}

// A process has the phases of a process.
type process struct {
	top    Phase
	active []*Phase // from the outermost
	live   map[uint64]born
	chips  []int // that its events name
}

// born is a live buffer: when it was allocated, and its bytes on all chips.
type born struct{ ns, bytes uint64 }

// New returns a Tree without phases that follows a state.
func New(s *aggregate.State) *Tree {
	t := &Tree{state: s, processes: make(map[int]*process), stacks: make(stacks)}
	s.OnRun(t.ran)
	return t
}

// Event takes an event that the state has just applied: see aggregate.State.Completed.
func (t *Tree) Event(e *event.Event) {
	t.nowNs = max(t.nowNs, e.TimeNs)
	switch e.Kind {
	case event.Alloc:
		t.enter(e)
		if int(e.Region) >= event.BankedRegions || e.BeforeAttach {
			return
		}
		p := t.of(e.PID)
		bytes := e.BytesPerBank * uint64(t.state.Banks(e)) * uint64(max(1, len(e.Devices)))
		p.live[e.BufferID] = born{e.TimeNs, bytes}
		for _, one := range p.active {
			one.left.Add(memory.Amount{Count: 1, Bytes: bytes})
		}
		for _, id := range e.Devices {
			t.sample(p, e.Region, id, t.state.Level(id, e.Region), e.TimeNs)
		}
	case event.Free:
		p := t.of(e.PID)
		b, known := p.live[e.BufferID]
		if !known || e.Reason.IsEnd() { // what ended with its device was left
			return
		}
		delete(p.live, e.BufferID)
		for _, one := range p.active {
			if one.beganNs <= b.ns {
				one.left.Sub(memory.Amount{Count: 1, Bytes: b.bytes})
			}
		}
	case event.ProgramRun, event.TraceReplay, event.AllocFailed, event.OperationFailed:
		t.enter(e)
	case event.DeviceClose:
		clear(t.of(e.PID).live)
	case event.ProcessExit, event.ProcessStart:
		if p := t.processes[e.PID]; p != nil {
			p.end(0, e.TimeNs)
			clear(p.live)
		}
	}
}

func (t *Tree) of(pid int) *process {
	p := t.processes[pid]
	if p == nil {
		p = &process{live: make(map[uint64]born), top: Phase{bySteps: make(map[step]*Phase)}}
		t.processes[pid] = p
	}
	return p
}

// ran takes the run of a program, which the library did not refuse.
func (t *Tree) ran(r memory.ProgramRun) {
	for _, p := range t.processes {
		t.sample(p, event.L1, r.Device, r.Bytes, r.TimeNs)
	}
}

// sample takes the use of a region of a chip.
func (t *Tree) sample(p *process, region event.Region, device int, bytes, ns uint64) {
	for _, one := range p.active {
		if peak := &one.Peaks[region]; bytes > peak.Bytes {
			*peak = Peak{bytes, ns, device}
		}
	}
}

// divides reports whether the call stack of an event says what its process was running. The main thread's
// stacks do, as other threads work for it.
func divides(e *event.Event) bool {
	switch e.Kind {
	case event.Alloc, event.ProgramRun, event.TraceReplay, event.AllocFailed, event.OperationFailed:
		return e.Stack != nil && e.TID == e.PID
	}
	return false
}

// enter takes the call stack of an event: phases that it is not in have ended.
func (t *Tree) enter(e *event.Event) {
	if !divides(e) {
		return
	}
	p, steps := t.of(e.PID), t.stacks.steps(e.Stack)
	if len(steps) == 0 {
		return
	}
	steps = steps[:min(len(steps), maxDepth)]
	same := 0
	for same < len(p.active) && same < len(steps) && p.active[same].step == steps[same] {
		same++
	}
	p.end(same, e.TimeNs)
	for _, one := range steps[same:] {
		in := &p.top
		if n := len(p.active); n > 0 {
			in = p.active[n-1]
		}
		f := in.bySteps[one]
		if f == nil {
			if t.count >= maxPhases {
				t.Full = true
				break
			}
			t.count++
			f = &Phase{step: one, PID: e.PID, FirstNs: e.TimeNs, bySteps: make(map[step]*Phase)}
			in.Inner, in.bySteps[one] = append(in.Inner, f), f
		}
		f.Entered++
		f.beganNs, f.left = e.TimeNs, memory.Amount{}
		p.active = append(p.active, f)
	}
	for _, id := range e.Devices {
		if !slices.Contains(p.chips, id) && len(p.chips) < maxChips {
			p.chips = append(p.chips, id)
		}
	}
	if same < len(steps) { // what was live before
		for _, id := range p.chips {
			for region := range event.Region(event.BankedRegions) {
				t.sample(p, region, id, t.state.Level(id, region), e.TimeNs)
			}
		}
	}
}

// end ends all active phases but the outermost ones.
func (p *process) end(outermost int, ns uint64) {
	for _, f := range p.active[outermost:] {
		f.TimeNs += ns - min(ns, f.beganNs)
		f.Left = f.left
		if f.Left.Bytes > f.MostLeft.Bytes {
			f.MostLeft = f.Left
		}
	}
	p.active = p.active[:outermost]
}

// stacks have the calls of known stacks.
type stacks map[*event.Stack][]step

// steps returns the calls of a stack, outermost first.
func (s stacks) steps(stack *event.Stack) []step {
	if known, ok := s[stack]; ok {
		return known
	}
	calls := slices.DeleteFunc(name.UserCalls(stack.Frames()), func(c name.Call) bool { return within[c.Function] })
	steps := []step{}
	for i := range calls {
		one := step{Call: calls[len(calls)-1-i]}
		if i+1 < len(calls) {
			one.Function = calls[len(calls)-2-i].Function
		}
		steps = append(steps, one)
	}
	s[stack] = steps
	return steps
}

// within are functions that belong to the line that they are in.
var within = map[string]bool{"<listcomp>": true, "<dictcomp>": true, "<setcomp>": true, "<genexpr>": true, "<lambda>": true}

// End ends all phases and returns the outermost ones, in the order of their beginnings.
func (t *Tree) End() (list []*Phase) {
	for _, p := range t.processes {
		p.end(0, t.nowNs)
		list = append(list, p.top.Inner...)
	}
	slices.SortFunc(list, func(a, b *Phase) int { return cmp.Or(cmp.Compare(a.FirstNs, b.FirstNs), cmp.Compare(a.PID, b.PID)) })
	return list
}

// String is the phase in a line: "train.py:31 backward()".
func (f *Phase) String() string {
	place := name.Call{File: path.Base(f.Call.File), Line: f.Call.Line, Function: f.Call.Function}
	if f.Function == "" {
		return place.String()
	}
	place.Function = f.Function + "()"
	return place.String()
}
