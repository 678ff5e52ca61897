package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A run is a program that ran on a chip, the latest time. Its sample of L1 counts the buffers as they
// were when it ran. The sample is taken before the next buffer changes and before the next run, but not
// at once: if the library refuses the run, that event comes first.
type run struct {
	by      *processChip
	program uint64
	of      *operation
	// at is the latest event of the run: the run itself, or a circular buffer of the program that was
	// reported after it.
	at    memory.Point
	taken bool
	// changes was chip.changes when the program ran.
	changes uint64
}

// settledNs is the time after which no event refuses a run. The library does so within milliseconds, in
// which it makes the text of the exception.
const settledNs = 1e9

// runProgram notes that a program is enqueued.
func (p *process) runProgram(e *event.Event) {
	p.reports = true
	d := p.set(e.Devices)
	op := p.state.operation(d, e)
	op.Runs, op.LastNs = op.Runs+1, e.TimeNs
	p.capture(d, e)
	p.use(d, e)
	runs := make([]run, len(d.chips))
	for i, c := range d.chips {
		runs[i] = run{by: c, program: e.ProgramID, of: op, at: p.state.point(e), changes: c.chip.changes}
		c.chip.begin(&runs[i])
		c.ran = true
	}
}

// placed adds a circular buffer of a program to its run, if it is reported after that and no buffer in
// L1 changed since. If the library reports no runs, the program runs when it is compiled.
func (p *process) placed(c *processChip, e *event.Event) {
	s := p.state
	latest, g := c.chip.run, c.programs[e.ProgramID]
	if latest.is(c, e.ProgramID) {
		g.run = latest
	}
	switch r := g.run; {
	case r != nil && (r.changes == c.chip.changes || r == latest && !e.BeforeAttach):
		if r != latest {
			c.chip.begin(r)
		}
		r.at, r.taken, r.changes = s.point(e), false, c.chip.changes
	case !p.reports && e.Stack != nil:
		if p.compiled != 0 && p.compiled != e.ProgramID+1 {
			c.chip.pools[event.L1].AtLeast = true // the one before did not run, or it was not reported
		}
		p.compiled = e.ProgramID + 1
		op := s.operation(p.set(e.Devices), e)
		op.LastNs = e.TimeNs
		c.chip.begin(&run{by: c, program: e.ProgramID, of: op, at: s.point(e), changes: c.chip.changes})
	}
}

func (s *State) point(e *event.Event) memory.Point {
	return memory.Point{Number: s.applied, TimeNs: e.TimeNs}
}

// is reports whether it is a run of that program.
func (r *run) is(by *processChip, program uint64) bool {
	return r != nil && r.by == by && r.program == program
}

// begin takes the sample of the run before. r may be nil.
func (c *chip) begin(r *run) {
	c.sample()
	if c.run = r; r != nil && r.by.programs[r.program] != nil {
		r.by.programs[r.program].run = r
	}
}

// change takes the sample of the latest run before a buffer in L1 changes.
func (c *chip) change() {
	c.sample()
	c.changes++
}

// refuse drops the runs of a program that the library refused: they never were.
func (p *process) refuse(e *event.Event) {
	if e.ProgramID == 0 && e.Region != event.CB && e.Region != event.Kernel {
		return
	}
	if p.compiled == e.ProgramID+1 {
		p.compiled = 0
	}
	var of *operation
	for _, c := range p.touched(e) {
		if r := c.chip.run; r.is(c, e.ProgramID) && !r.taken {
			of, c.chip.run = r.of, nil
			if g := c.programs[e.ProgramID]; g != nil {
				g.run = nil
			}
		}
	}
	if of != nil && of.Runs > 0 {
		of.Runs--
	}
	if of != nil && p.used != nil {
		p.used.Refuse(e.ProgramID)
	}
}

// forgetRuns forgets the runs of operations, after their samples were taken.
func (s *State) forgetRuns(of func(*operation) bool) {
	for _, c := range s.chips {
		if c.run != nil && of(c.run.of) {
			c.begin(nil)
		}
	}
	for _, p := range s.processes {
		for _, c := range p.chips {
			for _, g := range c.programs {
				if g.run != nil && of(g.run.of) {
					g.run = nil
				}
			}
		}
	}
}

// Settle takes the samples of all runs: no event will refuse one.
func (s *State) Settle() {
	for _, c := range s.chips {
		c.sample()
	}
}

// SettleUntil takes the samples of the runs that no event refuses any more at a time, which may be long
// after the latest event.
func (s *State) SettleUntil(ns uint64) {
	s.untilNs = max(s.untilNs, ns)
	s.settle()
}

// settle takes the samples of the runs that no event refuses any more.
func (s *State) settle() {
	for _, c := range s.chips {
		if s.isOver(c.run) {
			c.sample()
		}
	}
}

// isOver reports whether no event refuses a run any more.
func (s *State) isOver(r *run) bool {
	return r != nil && max(s.now, s.untilNs) >= r.at.TimeNs+settledNs
}

// sample takes the sample of the latest run, if it was not taken.
func (c *chip) sample() {
	r := c.run
	if r == nil || r.taken {
		return
	}
	r.taken = true
	use, fits := r.use()
	if !fits {
		return // the library refuses it, or buffers of two processes overlap
	}
	r.ran(&use)
}

// use returns the use of the chip's L1 by the run and all tensors, on the fullest core, and whether it
// fits.
func (r *run) use() (use memory.CoreUse, fits bool) {
	c := r.by.chip
	q := &c.pools[event.L1]
	use = r.sum(&c.used.Load, c.used.Regions[event.L1].PerBank)
	if q.Shared { // with the buffers of users that are not known
		use.TensorBytes += q.Bytes - min(q.Bytes, c.used.Of(event.L1))
	}
	use.CapacityBytes = q.Capacity()
	return use, use.CapacityBytes == 0 || use.Bytes() <= use.CapacityBytes
}

// share saves the shares of the program's call sites of the latest peak.
func (r *run) share(q *peak.Pool) {
	if g := r.by.programs[r.program]; g != nil {
		for i := range g.static {
			if e := &g.static[i]; e.site != nil {
				e.site.atPeak.Ran(q, e.tally().Amount)
			}
		}
	}
}

// sum returns the L1 on the core where buffers on single cores and the program have the most bytes.
func (r *run) sum(load *cores.Load, tensors uint64) (use memory.CoreUse) {
	if g := r.by.programs[r.program]; g != nil {
		use = g.use(load)
	} else {
		core, bytes := load.Fullest()
		use = memory.CoreUse{X: core.X, Y: core.Y, TensorBytes: bytes}
	}
	use.TensorBytes += tensors
	use.TimeNs, use.ProgramID, use.Device = r.at.TimeNs, r.program, r.by.chip.id
	return use
}

// parts returns the program's memory on a core by kind and call stack, most bytes first.
func (r *run) parts(core cores.Core) (list []peak.Part) {
	g := r.by.programs[r.program]
	if g == nil {
		return nil
	}
	name := r.of.set.process
	for _, e := range g.static {
		if e.global || e.place.Start == e.place.End || !e.place.Set.Has(core) {
			continue
		}
		one := memory.PeakProgram{
			PID: name.pid, ProgramID: r.program, Kind: e.kind, Stack: e.from.stack, BeforeAttach: e.from.beforeAttach,
			Count: 1, Bytes: e.place.BytesPerCore(),
		}
		at := slices.IndexFunc(list, func(p peak.Part) bool {
			return p.Kind == one.Kind && memory.StackID(p.Stack) == memory.StackID(one.Stack) && p.BeforeAttach == one.BeforeAttach
		})
		if at < 0 {
			list = append(list, peak.Part{PeakProgram: one, UID: name.about.UID})
			continue
		}
		list[at].Count++
		list[at].Bytes += one.Bytes
	}
	slices.SortFunc(list, func(a, b peak.Part) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(memory.StackID(a.Stack), memory.StackID(b.Stack)), memory.CompareBools(a.BeforeAttach, b.BeforeAttach))
	})
	return list
}

// OnRun sets a function that is called with each run of a program once it is clear that the library
// did not refuse it: before the next change of the chip's L1, and before its next run.
func (s *State) OnRun(ran func(memory.ProgramRun)) { *s.ran = ran }

// Runs reports whether the program of a circular buffer runs on a chip at this moment: the latest event
// is its run.
func (s *State) Runs(of *memory.Static, device int) bool {
	c := s.chips[device]
	return c != nil && s.isRunning(c) && c.run.program == of.ProgramID && c.run.of.set.process.pid == of.PID
}

func (s *State) isRunning(c *chip) bool {
	return c.run != nil && c.run.at.Number == s.applied && c.run.by.programs[c.run.program] != nil && !s.isOver(c.run)
}

// running returns what the program that runs at this moment adds to the buffers of the fullest core.
func (s *State) running(c *chip, u *peak.Use) uint64 {
	if !s.isRunning(c) {
		return 0
	}
	sum, capacity := c.run.sum(&u.Load, u.Regions[event.L1].PerBank), c.pools[event.L1].Capacity()
	if capacity > 0 && sum.Bytes() > capacity {
		return 0 // the library refuses it
	}
	return sum.Bytes() - min(sum.Bytes(), u.Of(event.L1))
}

// largest returns what the largest program of the process needs on its fullest core, and on all
// cores.
func (c *processChip) largest() (perCore, all uint64) {
	for _, g := range c.programs {
		need := g.use(&cores.Load{})
		perCore, all = max(perCore, need.StaticBytes()), max(all, g.bytes())
	}
	return perCore, all
}

// bytes returns the program's memory in L1 on all cores.
func (g *program) bytes() (sum uint64) {
	for i := range g.static {
		if !g.static[i].global {
			sum += g.static[i].place.Bytes()
		}
	}
	return sum
}

// latestRun writes or reads the latest run of a chip, if it is one of the process.
func (c *stateCodec) latestRun(by *processChip) {
	var r *run
	if latest := by.chip.run; !c.Reads && latest != nil && latest.by == by {
		r = latest
	}
	if c.run(&r, by); !c.Reads || r == nil {
		return
	}
	by.chip.run = r
	if g := by.programs[r.program]; g != nil && g.run != nil {
		g.run = r
	}
}

// run writes or reads a run of a process on a chip.
func (c *stateCodec) run(p **run, by *processChip) {
	number := 0 // of the operation, plus 1
	if r := *p; !c.Reads && r != nil {
		if n, ok := c.ran.Numbers[&r.of.Operation]; ok {
			number = n + 1
		}
	}
	if c.Below(&number, len(c.ran.List)+1); c.Bad || number == 0 {
		return
	}
	r := codec.Made(c.Codec, p)
	c.Uints(&r.program, &r.at.Number, &r.at.TimeNs, &r.changes)
	if c.Bool(&r.taken); c.Reads {
		r.by, r.of = by, c.state.operations.list[number-1]
	}
}
