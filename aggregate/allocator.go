package aggregate

import (
	"cmp"

	"ttmem/aggregate/capacity"
	"ttmem/tracer/event"
)

// An allocator is an open allocator of a process, on the chips of a device or a mesh.
type allocator struct {
	set        *deviceSet
	capacities capacity.Regions
}

func (s *State) openDevice(e *event.Event) {
	p := s.process(e)
	s.closeAllocator(p, e.Allocator)
	a := &allocator{s.set(p, e.Devices), e.Capacities}
	p.allocators[e.Allocator] = a
	for _, c := range a.set.chips {
		c.chip.board = cmp.Or(e.Board, c.chip.board)
		c.chip.arch = cmp.Or(e.Arch, c.chip.arch)
	}
	s.updateCapacities(p, a.set.chips)
}

// closeDevice ends the live buffers of an allocator.
//
// The programs on the chip stay, because separate events report their end, and the library
// sometimes frees an allocator's buffers without closing the device.
func (s *State) closeDevice(e *event.Event) {
	p := s.known(e.PID)
	if p == nil {
		return
	}
	for _, set := range p.sets {
		if a := set.arenas[e.Allocator]; a != nil {
			s.closeArena(p, a, e.TimeNs)
		}
	}
	s.closeAllocator(p, e.Allocator)
}

// closeArena ends all buffers of an arena.
func (s *State) closeArena(p *process, a *arena, now uint64) {
	s.noteEnds(p, a, now)
	count := s.endIn(p, a.set, a, now, event.ReasonDeviceClose)
	p.buffers.RemoveAll(count, func(b *buffer) bool { return b.arena == a })
	a.closed = true
	p.name.run.Open = p.buffers.Len() > 0
	delete(a.set.arenas, a.allocator)
}

// closeAllocator closes the allocator at an address, if there is one.
func (s *State) closeAllocator(p *process, address uint64) {
	a := p.allocators[address]
	if a == nil {
		return
	}
	delete(p.allocators, address)
	s.updateCapacities(p, a.set.chips)
}

// updateCapacities computes the capacities of chips after a process opened or closed an
// allocator on them. They stay when the last allocator is closed.
func (s *State) updateCapacities(p *process, chips []*processChip) {
	largest := make(map[*processChip]capacity.Regions)
	for _, a := range sortedValues(p.allocators) {
		for _, c := range a.set.chips {
			largest[c] = capacity.Larger(largest[c], a.capacities)
		}
	}
	for _, c := range chips {
		own := largest[c]
		if c.open = own != (capacity.Regions{}); c.open {
			c.own = own
		}
		c.chip.updateCapacities(s)
	}
}

// updateCapacities computes the capacities of a chip from those of all processes.
func (c *chip) updateCapacities(s *State) {
	var open []capacity.Regions
	for _, p := range s.processes {
		if of := p.chips[c.id]; of != nil && of.open {
			open = append(open, of.own)
		}
	}
	if len(open) > 0 {
		c.capacities = capacity.Shared(open)
	}
}

// capacities returns the capacities that the process has seen, also after it closed the chip;
// those of the chip if they are not known.
func (c *processChip) capacities() *capacity.Regions {
	if c.own == (capacity.Regions{}) {
		return &c.chip.capacities
	}
	return &c.own
}
