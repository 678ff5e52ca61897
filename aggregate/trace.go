package aggregate

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A trace is a captured trace of a process: programs that the device runs again at each replay.
type trace struct {
	id  uint64
	set *deviceSet
	// capturing is true until the capture ends.
	capturing bool
	// runs are the programs, each once for a call stack, in order of the first.
	runs []tracedRun
	// partial is true if not all runs are known.
	partial bool
	// seen is the place of the first of the process's newcomers that no replay has looked at.
	seen int
	// index has the places of runs while they are captured; nil if it is not made.
	index map[tracedKey]int
	// steps are the runs on each of their chips, and replay is what a replay does; nil if it is not known.
	steps  int
	replay *replay
}

// A replay is what a replay of a trace does, as long as neither L1 of its chips nor the list of operations changes: most
// programs change nothing from one replay to the next.
type replay struct {
	chips  []replayChip
	ops    map[*operation]uint64 // runs of each
	forgot uint64                // operations.forgot
	// fullest are the runs that need the most of each chip.
	fullest map[*processChip]*run
}

// A replayChip is a chip as it was when the replay was looked at.
type replayChip struct {
	*processChip
	ofBuffers, ofPrograms uint64 // changes of the chip's buffers, and of the programs
	capacity              uint64 // of L1
}

func (c replayChip) asNow() replayChip {
	return replayChip{c.processChip, c.chip.changes, c.changes, c.chip.pools[event.L1].Capacity()}
}

func (r *replay) isCurrent(s *State) bool {
	return r != nil && r.forgot == s.operations.forgot && !slices.ContainsFunc(r.chips, func(c replayChip) bool {
		return c.asNow() != c
	})
}

// A tracedRun is a program of a trace, which runs count times at each replay.
type tracedRun struct {
	set     *deviceSet
	program uint64
	stack   *event.Stack
	count   uint64
	// static is true if the program had memory in L1 when the capture ended.
	static bool
}

// A tracedKey is what the runs of a tracedRun have in common.
type tracedKey struct {
	set            *deviceSet
	program, stack uint64
}

func (r *tracedRun) key() tracedKey { return tracedKey{r.set, r.program, memory.StackID(r.stack)} }

// maxTraces is the number of traces of a process that are kept, and maxTracedRuns that of the programs in all of them.
// maxCaptures is how many captures may go on at a time, and maxSteps how many steps a trace has.
const maxTraces, maxTracedRuns, maxCaptures, maxSteps = 1024, 1 << 16, 16, 1 << 18

// traceOf returns the trace of an event; nil if its beginning was not seen.
func (p *process) traceOf(e *event.Event) *trace {
	for _, t := range p.traces {
		if t.id == e.ProgramID && slices.Equal(t.set.ids, e.Devices) {
			return t
		}
	}
	return nil
}

func (p *process) dropTraces(which func(*trace) bool) {
	p.traces = slices.DeleteFunc(p.traces, func(t *trace) bool {
		drop := which(t)
		if drop {
			p.hold(-len(t.runs))
		}
		return drop
	})
	if !slices.ContainsFunc(p.traces, func(t *trace) bool { return !t.capturing }) {
		p.newcomers = newcomers{}
	}
}

// beginTrace begins the capture of a trace.
func (p *process) beginTrace(e *event.Event) {
	p.captures = true
	t := p.traceOf(e)
	captures := 0
	for _, other := range p.traces {
		if other.capturing {
			captures++
		}
	}
	p.dropTraces(func(other *trace) bool {
		tooMany := captures >= maxCaptures && other.capturing // the oldest one did not end
		if tooMany {
			captures--
		}
		return tooMany || other == t
	})
	if len(p.traces) < maxTraces {
		p.traces = append(p.traces, &trace{id: e.ProgramID, set: p.set(e.Devices), capturing: true})
	}
}

// endTrace ends the capture of a trace.
func (p *process) endTrace(e *event.Event) {
	p.captures = true
	t := p.traceOf(e)
	if t == nil {
		return
	}
	t.capturing, t.index, t.replay, t.seen = false, nil, nil, len(p.newcomers.ids)
	for i := range t.runs {
		r := &t.runs[i]
		r.static = slices.ContainsFunc(r.set.chips, func(c *processChip) bool { return c.hasStatics(r.program) })
	}
}

// hasStatics reports whether a program has memory in L1.
func (c *processChip) hasStatics(program uint64) bool {
	g := c.programs[program]
	return g != nil && len(g.static) > 0
}

// refuseTrace forgets the latest trace of an allocator that had no room for it.
func (p *process) refuseTrace(e *event.Event) {
	for _, t := range slices.Backward(p.traces) {
		if slices.Equal(t.set.ids, e.Devices) {
			p.dropTraces(func(other *trace) bool { return other == t })
			return
		}
	}
}

// releaseTrace ends a captured trace.
func (p *process) releaseTrace(e *event.Event) {
	t := p.traceOf(e)
	p.dropTraces(func(other *trace) bool { return other == t })
}

// capture adds the run of a program to the trace that is being captured.
func (p *process) capture(d *deviceSet, e *event.Event) {
	of := slices.IndexFunc(p.traces, func(t *trace) bool {
		return t.capturing && len(d.sorted) > 0 && d.common(t.set) == len(d.sorted)
	})
	if of < 0 {
		return
	}
	t, run := p.traces[of], tracedRun{set: d, program: e.ProgramID, stack: e.Stack, count: 1}
	t.replay = nil
	if t.index == nil {
		t.index = make(map[tracedKey]int)
		for i := range t.runs {
			t.index[t.runs[i].key()] = i
		}
	}
	same, known := t.index[run.key()]
	switch {
	case known:
		t.runs[same].count++
	case p.tracedRuns() >= maxTracedRuns || t.steps >= maxSteps || !p.hold(1):
		t.partial = true
	default:
		t.index[run.key()] = len(t.runs)
		t.runs = append(t.runs, run)
		t.steps += run.steps()
	}
}

func (r *tracedRun) steps() int { return max(1, r.set.count) }

func (p *process) tracedRuns() (n int) {
	for _, t := range p.traces {
		n += len(t.runs)
	}
	return n
}

// replayTrace runs the programs of a trace. The host changes nothing between them, so that each chip
// gets one sample of L1: the program that needs the most.
func (p *process) replayTrace(e *event.Event) {
	s := p.state
	d, t := p.set(e.Devices), p.traceOf(e)
	if p.used != nil {
		p.used.Replay(e.TimeNs, e.Stack)
	}
	if !p.mayReplay(d, t, e) {
		for _, c := range d.chips {
			c.chip.pools[event.L1].AtLeast = true
		}
		return
	}
	if t == nil {
		op := s.operation(d, e)
		op.Replays, op.LastNs = op.Replays+1, e.TimeNs
	}
	for _, c := range d.chips {
		c.chip.begin(nil) // takes the sample of the run before
		if t == nil || t.partial {
			c.chip.pools[event.L1].AtLeast = true
		}
	}
	if t == nil {
		return
	}
	p.findUnsafe(t, e.TimeNs)
	if t.replay == nil {
		t.replay = p.replayOf(t, e)
	}
	for op, runs := range t.replay.ops {
		op.Runs, op.Replays, op.LastNs = op.Runs+runs, op.Replays+runs, e.TimeNs
	}
	for _, c := range d.chips {
		if r := t.replay.fullest[c]; r != nil {
			again := *r
			again.at = s.point(e)
			c.chip.begin(&again)
		}
	}
}

// mayReplay reports whether a replay costs no more than its user may cause. It drops what the trace has of the one before if
// that is not current.
func (p *process) mayReplay(d *deviceSet, t *trace, e *event.Event) bool {
	const stepsAChip, operationsAStep = 4, 2
	steps := stepsAChip * len(d.chips)
	switch {
	case t == nil:
	case t.replay.isCurrent(p.state):
		steps += len(t.replay.ops) / operationsAStep
	default:
		t.replay = nil
		steps += t.steps
	}
	return steps <= stepsAChip*cheapChips || p.maySpend(steps, e.TimeNs)
}

// replayOf returns what a replay of a trace does, and takes the samples of its operations.
func (p *process) replayOf(t *trace, e *event.Event) *replay {
	s := p.state
	all := &replay{ops: make(map[*operation]uint64), fullest: make(map[*processChip]*run)}
	most := make(map[*processChip]uint64)
	for i := range t.runs {
		one := &t.runs[i]
		op := s.operation(one.set, &event.Event{PID: e.PID, TimeNs: e.TimeNs, Stack: one.stack})
		all.ops[op] += one.count
		for _, c := range one.set.chips {
			if one.static && !c.hasStatics(one.program) {
				c.chip.pools[event.L1].AtLeast = true // the trace still runs it where it was
			}
			if _, known := most[c]; !known {
				most[c] = 0
				all.chips = append(all.chips, replayChip{processChip: c}.asNow())
			}
			r := run{by: c, program: one.program, of: op, at: s.point(e), changes: c.chip.changes}
			use, fits := r.use()
			if !fits {
				continue
			}
			op.raise(&use)
			if all.fullest[c] == nil || use.Bytes() > most[c] {
				all.fullest[c], most[c] = &r, use.Bytes()
			}
		}
	}
	all.forgot = s.operations.forgot
	return all
}

// TraceRuns returns the programs that run when a captured trace is replayed; seen is false if its capture
// was not seen.
func (s *State) TraceRuns(pid int, devices []int, id uint64) (runs []memory.TracedRun, seen bool) {
	p := s.known(pid)
	if p == nil {
		return nil, false
	}
	t := p.traceOf(&event.Event{Devices: devices, ProgramID: id})
	if t == nil {
		return nil, false
	}
	for _, r := range t.runs {
		runs = append(runs, memory.TracedRun{ProgramID: r.program, Devices: r.set.ids, Stack: r.stack, Count: r.count})
	}
	return runs, true
}

// trace writes or reads a trace.
func (c *stateCodec) trace(pp **trace, p *process) {
	t := codec.Made(c.Codec, pp)
	c.Uint(&t.id)
	c.set(&t.set, p.name)
	c.Bool(&t.capturing)
	c.Bool(&t.partial)
	codec.Number(c.Codec, &t.seen)
	codec.ListUpTo(c.Codec, &t.runs, maxTracedRuns, func(r *tracedRun) {
		c.set(&r.set, p.name)
		c.Uints(&r.program, &r.count)
		c.Stack(&r.stack)
		c.Bool(&r.static)
	})
	if c.Reads {
		p.kept.allocations += len(t.runs)
		for i := range t.runs {
			t.steps += t.runs[i].steps()
		}
	}
	foreign := func(r tracedRun) bool { return r.set.process != p.name }
	if c.Reads && (len(p.traces) >= maxTraces || t.set.process != p.name || slices.ContainsFunc(t.runs, foreign)) {
		c.Fail()
	}
}
