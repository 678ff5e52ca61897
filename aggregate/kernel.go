package aggregate

import (
	"ttmem/tracer/event"
)

// kernelUsage is what the kernels of programs occupy on a chip. Their text is in a ring in
// each core's L1 that programs use one after the other, so that the largest program counts
// there, not the sum.
type kernelUsage struct {
	programs uint64
	// dram is the bytes of the binaries, textSum of the text per core.
	dram, textSum      uint64
	dramPeak, textPeak uint64
}

// A kernel is the kernels of one program on one chip, in bytes: of binaries in
// DRAM, and of text in each core's L1.
type kernel struct {
	dram, text uint64
	from       *origin
	site       *callSite
}

func (k *kernel) tally() tally { return tally{Amount: Amount{1, k.dram}} }

// loadKernel adds the kernels of a program. A second event of the same program corrects the
// first.
func (s *State) loadKernel(e *event.Event) {
	p := s.process(e)
	from := originOf(e)
	for _, c := range s.set(p, e.Devices).chips {
		if g := c.programs[e.ProgramID]; g != nil && g.kernel != nil {
			old := g.kernel
			s.unloadKernel(c, e.ProgramID, event.ReasonExplicit)
			old.site.allocated.Sub(Amount{1, old.dram})
		}
		site := s.site(s.aloneOf(p, c).arena(0), siteKey{region: event.Kernel, before: e.BeforeAttach}, e.Stack)
		k := &kernel{e.SizeBytes, e.BytesPerBank, from, site}
		s.addTo(site, k.tally(), e.TimeNs)
		c.program(e.ProgramID).kernel = k
		c.countKernel(k)
		for _, u := range c.both() {
			t := &u.kernels
			t.dramPeak = max(t.dramPeak, t.dram)
			t.textPeak = max(t.textPeak, k.text)
		}
	}
}

func (s *State) unloadKernels(e *event.Event) {
	p := s.known(e.PID)
	if p == nil {
		return
	}
	for _, c := range p.touched(e) {
		s.unloadKernel(c, e.ProgramID, e.Reason)
	}
}

// unloadKernel ends the kernels of a program, where it has any.
func (s *State) unloadKernel(c *processChip, programID uint64, reason event.Reason) {
	g := c.programs[programID]
	if g == nil || g.kernel == nil {
		return
	}
	for _, u := range c.both() {
		t := &u.kernels
		t.programs--
		t.dram -= g.kernel.dram
		t.textSum -= g.kernel.text
	}
	s.removeFrom(g.kernel.site, g.kernel.tally(), g.kernel.from.since, reason)
	g.kernel = nil
	c.tidy(programID)
}

// textMax is the most text that a live program of the process has on a core.
func (c *processChip) textMax() uint64 {
	var most uint64
	for _, g := range c.programs {
		if g.kernel != nil {
			most = max(most, g.kernel.text)
		}
	}
	return most
}
