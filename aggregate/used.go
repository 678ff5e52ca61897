package aggregate

import (
	"maps"
	"slices"

	"ttmem/aggregate/uses"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// use takes a run of a program, and which addresses it uses. The buffers of a process are followed from its first use
// on.
func (p *process) use(d *deviceSet, e *event.Event) {
	if e.Uses == nil {
		return
	}
	p.followUses()
	p.used.Begin(e.ProgramID, e.TimeNs, e.Stack, slices.ContainsFunc(p.traces, func(t *trace) bool { return t.capturing }))
	arenas := p.state.searched[:0]
	for _, set := range p.sets {
		switch {
		case set.common(d) == 0:
		case len(set.arenas) == 1 && set.lastArena != nil && !set.lastArena.closed:
			arenas = append(arenas, set.lastArena) // the usual case, without the cost of ranging over a map
		default:
			arenas = slices.AppendSeq(arenas, maps.Values(set.arenas)) // in any order
		}
	}
	p.state.searched = arenas
	find := func(addresses []uint32, static bool, in func(*uses.Places, []uint64, uint64) []uint64) {
		for _, at := range addresses {
			ids := p.state.found[:0]
			for _, a := range arenas {
				ids = in(&a.places, ids, uint64(at))
			}
			if p.state.found = ids; len(ids) == 1 {
				p.used.Add(ids[0])
			} else if len(ids) == 0 {
				p.useFreed(e, arenas, uint64(at), static)
			} else { // of buffers of several allocators, or in DRAM and L1, it is not known which one is meant
				p.used.Perhaps(ids...)
			}
		}
	}
	find(e.Uses.Arguments, false, (*uses.Places).Argument)
	find(e.Uses.Statics, true, (*uses.Places).Static)
}

// transfer takes that the host writes or reads a buffer.
func (p *process) transfer(e *event.Event) {
	if p.buffers.Get(e.BufferID) != nil {
		p.followUses()
		p.used.Transfer(e.BufferID, e.TimeNs, e.Stack)
	}
}

// followUses begins to follow the uses of the buffers, if that is not done.
func (p *process) followUses() {
	if p.used != nil {
		return
	}
	p.used = new(uses.Buffers)
	for b := range p.buffers.All() {
		p.placeUse(b)
	}
}

// placeUse adds the addresses of a buffer to those that uses are searched in. Uses of buffers on single cores are
// not found.
func (p *process) placeUse(b *buffer) {
	if p.used != nil && !b.PerCore {
		b.arena.places.Add(b.Region, b.Address, b.End(), b.BufferID)
	}
}

// endUse forgets a buffer that ends.
func (p *process) endUse(b *buffer) {
	if p.used != nil {
		b.arena.places.Remove(b.Region, b.Address, b.BufferID)
		p.used.Ended(b.BufferID)
	}
}

// endUses forgets all buffers of an arena.
func (p *process) endUses(a *arena) {
	for id := range a.places.All() {
		p.used.Ended(id)
	}
}

// UseOf returns how runs of programs and the host used a live buffer, and how many runs followed. known is false if that was
// not recorded.
func (s *State) UseOf(pid int, buffer uint64) (use uses.Use, runs uint64, known bool) {
	if p := s.known(pid); p != nil && p.used != nil {
		use, runs = p.used.Of(buffer)
		return use, runs, true
	}
	return use, 0, false
}

// UsesOf returns how many live buffers the latest run of a program of a process uses, after its ProgramRun was
// applied.
func (s *State) UsesOf(pid int) int {
	if p := s.known(pid); p != nil && p.used != nil {
		return p.used.Latest()
	}
	return 0
}

// PossibleUses returns the live buffers that the latest run of a program of a process uses or, if several have an address
// of it, may use, until it is called again. A run that was refused has none.
func (s *State) PossibleUses(pid int) []uint64 {
	if p := s.known(pid); p != nil && p.used != nil {
		return p.used.Possible()
	}
	return nil
}

// uses writes or reads those of a process, before its buffers.
func (c *stateCodec) uses(p *process) {
	codec.Maybe(c.Codec, &p.used, func(b *uses.Buffers) { b.Code(c.Codec) })
}
