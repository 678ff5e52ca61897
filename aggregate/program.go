package aggregate

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A staticEntry is one circular buffer, dataflow buffer or scratchpad of a program.
type staticEntry struct {
	place  cores.Place
	kind   event.StaticKind
	global bool
	from   *origin
	site   *callSite // nil if it is global
}

// An origin describes the allocation of a circular buffer or a kernel. All chips of its event
// share it.
type origin struct {
	since        uint64
	stack        *event.Stack
	beforeAttach bool
}

func originOf(e *event.Event) *origin { return &origin{e.TimeNs, e.Stack, e.BeforeAttach} }

func (e *staticEntry) tally() memory.Tally {
	return memory.Tally{Amount: memory.Amount{Count: 1, Bytes: e.place.Bytes()}}
}

func (p *process) allocCB(e *event.Event) {
	place, ok := p.coreSets.Place(e)
	switch {
	case !ok && p.coreSets.Full():
		p.beyond()
		return
	case !ok:
		p.state.anomalies.MalformedEvents++
		return
	}
	entry := staticEntry{place: place, kind: e.StaticKind, global: e.Global, from: originOf(e)}
	d := p.set(e.Devices)
	for _, c := range d.chips {
		if p.addCB(c, e.ProgramID, entry) {
			p.placed(c, e)
		}
	}
}

// addCB adds a circular buffer to a program, and reports whether the program has it.
func (p *process) addCB(c *processChip, programID uint64, entry staticEntry) bool {
	g := c.programs[programID]
	if g != nil {
		for _, old := range g.static {
			if old.place == entry.place && old.kind == entry.kind && old.global == entry.global {
				// The program was assigned the same place again.
				return true
			}
		}
	}
	if !g.hasRoom(entry.place.Set) {
		p.beyond()
		return false
	}
	if !entry.global {
		entry.site = p.site(p.arena(p.aloneOf(c), 0), memory.Site{
			Region: event.CB, Static: entry.kind, BeforeAttach: entry.from.beforeAttach, Stack: entry.from.stack,
		})
		if entry.site == nil {
			return false
		}
	}
	if !p.hold(c.costOf(programID)) {
		return false
	}
	g = c.program(programID)
	if !entry.global {
		p.addTo(entry.site, entry.tally(), entry.from.since)
	}
	c.count(&entry, len(g.static) == 0)
	g.add(entry)
	c.changes++
	return true
}

// add adds a circular buffer.
func (g *program) add(entry staticEntry) {
	if !g.hasSet(entry.place.Set) {
		g.steps += entry.place.Set.Len()
	}
	g.static, g.known = append(g.static, entry), false
}

// hasRoom reports whether a program, which may be nil, may have one more circular buffer.
func (g *program) hasRoom(set *cores.Set) bool {
	return g == nil || len(g.static) < maxParts && (g.hasSet(set) || g.steps+set.Len() <= maxCoreSteps)
}

func (g *program) hasSet(set *cores.Set) bool {
	return slices.ContainsFunc(g.static, func(e staticEntry) bool { return e.place.Set == set })
}

// use returns the memory of a program in L1 on the core where the sum with buffers on single cores is
// highest. Without such buffers it is computed once, because programs mostly run many times without a
// change.
func (g *program) use(load *cores.Load) memory.CoreUse {
	if g.known && load.Empty() {
		return g.l1
	}
	places := make([]cores.Place, 0, len(g.static))
	for i := range g.static {
		if !g.static[i].global {
			places = append(places, g.static[i].place)
		}
	}
	core := cores.FullestOf(places, load)
	use := memory.CoreUse{X: core.X, Y: core.Y, TensorBytes: load.On(core)}
	for i := range g.static {
		e := &g.static[i]
		if e.global || !e.place.Set.Has(core) {
			continue
		}
		switch e.kind {
		case event.DataflowBuffer:
			use.DFBBytes += e.place.BytesPerCore()
		case event.Scratchpad:
			use.ScratchpadBytes += e.place.BytesPerCore()
		default:
			use.CBBytes += e.place.BytesPerCore()
		}
	}
	if load.Empty() {
		g.l1, g.known = use, true
	}
	return use
}

func (p *process) freeCBs(e *event.Event) {
	for _, c := range p.touched(e) {
		p.freeCBsOf(c, e.ProgramID, e.StaticKind, e.Reason)
	}
}

// freeCBsOf ends the circular buffers of a program, or those of one kind; NotStatic means
// all. Several probes report the end, so it may come more than once.
func (p *process) freeCBsOf(c *processChip, programID uint64, kind event.StaticKind, reason event.Reason) {
	g := c.programs[programID]
	if g == nil || len(g.static) == 0 {
		return
	}
	if c.chip.run.is(c, programID) {
		c.chip.sample()
	}
	ends := func(entry staticEntry) bool { return kind == event.NotStatic || entry.kind.FreedAs() == kind }
	for _, entry := range g.static {
		if !ends(entry) {
			continue
		}
		if entry.site != nil {
			p.removeFrom(entry.site, entry.tally(), entry.from.since, reason)
		}
		for _, u := range c.both() {
			u.CountStatic(-1, entry.place, entry.global)
		}
	}
	had := len(g.static)
	g.static = slices.DeleteFunc(g.static, ends)
	p.hold(len(g.static) - had)
	c.changes++
	if g.known = false; len(g.static) == 0 {
		g.steps = 0
	}
	if len(g.static) == 0 {
		for _, u := range c.both() {
			u.CountPrograms(-1)
		}
	}
	p.tidy(c, programID)
}

// Statics returns the circular and dataflow buffers of all live programs on a chip, in order
// of process, program and time.
func (s *State) Statics(device int) (list []memory.Static) {
	for _, p := range s.byPID() {
		if c := p.chips[device]; c != nil {
			for _, id := range sortedKeys(c.programs) {
				list = append(list, p.statics(id, device)...)
			}
		}
	}
	return list
}

// StaticsOf returns the circular and dataflow buffers of one program on a chip, in order of time.
func (s *State) StaticsOf(pid int, programID uint64, device int) []memory.Static {
	return s.known(pid).statics(programID, device)
}

// statics returns the circular and dataflow buffers of one program on a chip, in order of time; none if p
// is nil.
func (p *process) statics(programID uint64, device int) (list []memory.Static) {
	if p == nil || p.chips[device] == nil || p.chips[device].programs[programID] == nil {
		return nil
	}
	for _, e := range p.chips[device].programs[programID].static {
		list = append(list, memory.Static{
			PID: p.pid, Device: device, ProgramID: programID,
			Cores: e.place.Set.Ranges(), Address: e.place.Start, BytesPerCore: e.place.BytesPerCore(),
			Kind: e.kind, Global: e.global, SinceNs: e.from.since,
			BeforeAttach: e.from.beforeAttach, Stack: e.from.stack,
		})
	}
	return list
}

// Program returns the bytes of the circular buffers of a program of a process, by the plain sum
// over cores and chips. live is false if it has neither these nor kernels.
func (s *State) Program(pid int, id uint64) (bytes uint64, live bool) {
	p := s.known(pid)
	if p == nil {
		return 0, false
	}
	for _, c := range p.chips {
		g := c.programs[id]
		if g == nil {
			continue
		}
		live = live || len(g.static) > 0 || g.kernel != nil
		bytes += g.bytes()
	}
	return bytes, live
}

// A kernel is the kernels of one program on one chip: the bytes of their binaries in DRAM,
// and of their text in each core's L1.
type kernel struct {
	kind       event.KernelKind
	dram, text uint64
	from       *origin
	site       *callSite
}

func (k *kernel) tally() memory.Tally {
	return memory.Tally{Amount: memory.Amount{Count: 1, Bytes: k.dram}}
}

// loadKernel adds the kernels of a program. A second event for the same program replaces the
// first.
func (p *process) loadKernel(e *event.Event) {
	from := originOf(e)
	for _, c := range p.set(e.Devices).chips {
		if g := c.programs[e.ProgramID]; g != nil && g.kernel != nil {
			old := g.kernel
			p.unloadKernel(c, e.ProgramID, event.ReasonExplicit)
			old.site.allocated.Sub(memory.Amount{Count: 1, Bytes: old.dram})
		}
		site := p.site(p.arena(p.aloneOf(c), 0), memory.Site{Region: event.Kernel, BeforeAttach: e.BeforeAttach, Stack: e.Stack})
		if site == nil || !p.hold(c.costOf(e.ProgramID)) {
			continue
		}
		k := &kernel{e.KernelKind, e.SizeBytes, e.BytesPerBank, from, site}
		p.addTo(site, k.tally(), e.TimeNs)
		c.program(e.ProgramID).kernel = k
		c.loaded = c.loaded || k.kind == event.WorkerKernels
		c.countKernel(1, k)
	}
}

func (p *process) unloadKernels(e *event.Event) {
	for _, c := range p.touched(e) {
		p.unloadKernel(c, e.ProgramID, e.Reason)
	}
}

// unloadKernel ends the kernels of a program, if it has any.
func (p *process) unloadKernel(c *processChip, programID uint64, reason event.Reason) {
	g := c.programs[programID]
	if g == nil || g.kernel == nil {
		return
	}
	p.hold(-1)
	c.countKernel(-1, g.kernel)
	p.removeFrom(g.kernel.site, g.kernel.tally(), g.kernel.from.since, reason)
	g.kernel = nil
	p.tidy(c, programID)
}

// countKernel adds the kernels of a program if n is 1, and removes them if n is -1.
func (c *processChip) countKernel(n int, k *kernel) {
	for _, u := range c.both() {
		u.CountKernels(n, k.kind, k.dram, k.text)
	}
}

// isSilent reports whether the process has or had programs on a chip, or may have some from before the
// attach, and the kernels of none were reported.
func (p *process) isSilent(c *processChip) bool {
	return !c.loaded && (c.ran || c.used.HasPrograms() || p.name.about.AttachedLate)
}

// textMax returns the largest text on a core among the live programs of the process, for each kind of
// kernels.
func (c *processChip) textMax() (most [event.NumKernelKinds]uint64) {
	for _, g := range c.programs {
		if k := g.kernel; k != nil {
			most[k.kind] = max(most[k.kind], k.text)
		}
	}
	return most
}
