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

// maxTraces is the number of traces of a process that are kept, and maxTracedRuns that of the
// programs in all of them.
const maxTraces, maxTracedRuns = 1024, 1 << 16

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
	p.dropTraces(func(other *trace) bool { return other == t })
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
	t.capturing, t.index, t.seen = false, nil, len(p.newcomers.ids)
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
		return t.capturing && len(d.ids) > 0 && !slices.ContainsFunc(d.ids, func(id int) bool { return !slices.Contains(t.set.ids, id) })
	})
	if of < 0 {
		return
	}
	t, run := p.traces[of], tracedRun{set: d, program: e.ProgramID, stack: e.Stack, count: 1}
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
	case p.tracedRuns() >= maxTracedRuns || !p.hold(1):
		t.partial = true
	default:
		t.index[run.key()] = len(t.runs)
		t.runs = append(t.runs, run)
	}
}

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
	fullest := make(map[*processChip]*run)
	most := make(map[*processChip]uint64)
	for i := range t.runs {
		one := &t.runs[i]
		op := s.operation(one.set, &event.Event{PID: e.PID, TimeNs: e.TimeNs, Stack: one.stack})
		op.Runs, op.Replays, op.LastNs = op.Runs+one.count, op.Replays+one.count, e.TimeNs
		for _, c := range one.set.chips {
			if one.static && !c.hasStatics(one.program) {
				c.chip.pools[event.L1].AtLeast = true // the trace still runs it where it was
			}
			r := &run{by: c, program: one.program, of: op, at: s.point(e), changes: c.chip.changes}
			use, fits := r.use()
			if !fits {
				continue
			}
			op.raise(&use)
			if fullest[c] == nil || use.Bytes() > most[c] {
				fullest[c], most[c] = r, use.Bytes()
			}
		}
	}
	for _, c := range d.chips {
		if r := fullest[c]; r != nil {
			c.chip.begin(r)
		}
	}
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
	codec.List(c.Codec, &t.runs, func(r *tracedRun) {
		c.set(&r.set, p.name)
		c.Uints(&r.program, &r.count)
		c.Stack(&r.stack)
		c.Bool(&r.static)
	})
	if c.Reads {
		p.kept.allocations += len(t.runs)
	}
	foreign := func(r tracedRun) bool { return r.set.process != p.name }
	if c.Reads && (len(p.traces) >= maxTraces || len(t.runs) > maxTracedRuns || t.set.process != p.name || slices.ContainsFunc(t.runs, foreign)) {
		c.Fail()
	}
}
