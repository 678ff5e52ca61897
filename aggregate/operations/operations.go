// Package operations computes the L1 that a program occupies when it runs.
package operations

import (
	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Part is a circular buffer, dataflow buffer or scratchpad of a program.
type Part struct {
	cores.Place
	Kind event.StaticKind
}

// A Program is the memory of a program on its fullest core. It is computed once, because programs
// mostly run many times without a change.
type Program struct {
	use   memory.CoreUse
	known bool
}

// Forget is called when the parts of the program have changed.
func (p *Program) Forget() { p.known = false }

// Use returns the memory of a program with these parts on the core where the sum with buffers on
// single cores is highest.
func (p *Program) Use(partsOf func() []Part, load *cores.Load) memory.CoreUse {
	if p.known && load.Empty() {
		return p.use
	}
	parts := partsOf()
	places := make([]cores.Place, 0, len(parts))
	for _, part := range parts {
		places = append(places, part.Place)
	}
	core := cores.FullestOf(places, load)
	use := memory.CoreUse{X: core.X, Y: core.Y, TensorBytes: load.On(core)}
	for _, part := range parts {
		if !part.Set.Has(core) {
			continue
		}
		switch part.Kind {
		case event.DataflowBuffer:
			use.DFBBytes += part.BytesPerCore()
		case event.Scratchpad:
			use.ScratchpadBytes += part.BytesPerCore()
		default:
			use.CBBytes += part.BytesPerCore()
		}
	}
	if load.Empty() {
		p.use, p.known = use, true
	}
	return use
}
