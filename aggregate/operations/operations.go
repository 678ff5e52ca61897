// Package operations counts the programs that a call stack runs, and the L1 that they occupied.
package operations

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A Run is a program that was enqueued, with the bytes per core that the buffers in all banks of
// L1 had at that time.
type Run struct {
	Of                  *memory.Operation // nil: no run was seen
	TimeNs, TensorBytes uint64
}

// Code writes or reads a run. If its operation was forgotten, it becomes an unknown run.
func (r *Run) Code(c *codec.Codec, all *codec.Once[memory.Operation]) {
	n := 0
	if number, ok := all.Numbers[r.Of]; ok {
		n = number + 1
	}
	if c.Below(&n, len(all.List)+1); n == 0 {
		return
	}
	c.Uints(&r.TimeNs, &r.TensorBytes)
	if c.Reads {
		r.Of = all.List[n-1]
	}
}

// Awaited are the latest runs of programs whose memory was not reported yet: they are being
// compiled, or read from the process's memory after a late attach. The newest is last.
type Awaited []awaitedRun

type awaitedRun struct {
	program uint64
	Run
}

// maxAwaited is far above the number of programs that are compiled at the same time.
const maxAwaited = 32

// Add adds a run of a program.
func (a *Awaited) Add(program uint64, r Run) {
	if len(*a) == maxAwaited {
		*a = slices.Delete(*a, 0, 1)
	}
	*a = append(*a, awaitedRun{program, r})
}

// Take removes the runs of a program, and returns the latest.
func (a *Awaited) Take(program uint64) (latest Run) {
	*a = slices.DeleteFunc(*a, func(one awaitedRun) bool {
		if one.program == program {
			latest = one.Run
		}
		return one.program == program
	})
	return latest
}

// Code writes or reads the runs.
func (a *Awaited) Code(c *codec.Codec, all *codec.Once[memory.Operation]) {
	codec.List(c, (*[]awaitedRun)(a), func(one *awaitedRun) {
		c.Uint(&one.program)
		one.Code(c, all)
	})
	if len(*a) > maxAwaited {
		c.Fail()
	}
}

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
	p.use, p.known = use, load.Empty()
	return use
}
