package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// capacities has the capacity of each region.
type capacities [event.BankedRegions]event.Capacity

// compareCapacities orders capacities by the total of all banks.
func compareCapacities(a, b event.Capacity) int {
	return cmp.Or(cmp.Compare(a.Total(), b.Total()), cmp.Compare(a.Banks, b.Banks))
}

// largerCapacities returns the larger capacity of each region. A mesh and its submeshes have an allocator
// each for the same memory: the largest one counts.
func largerCapacities(a, b capacities) capacities {
	for r := range a {
		if compareCapacities(b[r], a[r]) > 0 {
			a[r] = b[r]
		}
	}
	return a
}

// sharedCapacities returns the capacities of a chip that several processes have open. A process that
// reserves more of a bank for L1_SMALL or for traces has less L1 or DRAM. If they differ, the chip
// has the largest reservation and the smallest remainder, so that its regions add up. Unknown
// capacities do not count.
func sharedCapacities(open []capacities) (chip capacities) {
	for r := range chip {
		one := &chip[r]
		for _, own := range open {
			order := compareCapacities(own[r], *one)
			if region := event.Region(r); region != event.L1Small && region != event.Trace {
				order = -order
			}
			if own[r].Total() > 0 && (order > 0 || one.Total() == 0) {
				*one = own[r]
			}
		}
	}
	return chip
}

// An allocator is an open allocator of a process, on the chips of a device or a mesh.
type allocator struct {
	set        *deviceSet
	capacities capacities
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
	maps.DeleteFunc(p.owners, func(id uint64, _ memory.Owner) bool { return p.buffers.Get(id) == nil })
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
func (*State) updateCapacities(p *process, chips []*processChip) {
	largest := make(map[*processChip]capacities)
	for _, a := range sortedValues(p.allocators) {
		for _, c := range a.set.chips {
			largest[c] = largerCapacities(largest[c], a.capacities)
		}
	}
	for _, c := range chips {
		own := largest[c]
		c.countCapacities(-1)
		if c.open = own != (capacities{}); c.open {
			c.own = own
		}
		c.countCapacities(1)
		if len(c.chip.open) > 0 {
			c.chip.capacities = sharedCapacities(slices.Collect(maps.Keys(c.chip.open)))
		}
	}
}

// countCapacities adds what the process has open to what is open on the chip, or removes it.
func (c *processChip) countCapacities(n int) {
	if !c.open {
		return
	}
	if c.chip.open == nil {
		c.chip.open = make(map[capacities]int)
	}
	if c.chip.open[c.own] += n; c.chip.open[c.own] == 0 {
		delete(c.chip.open, c.own)
	}
}

// capacities returns the capacities that the process has seen, also after it closed the chip;
// those of the chip if they are not known.
func (c *processChip) capacities() *capacities {
	if c.own == (capacities{}) {
		return &c.chip.capacities
	}
	return &c.own
}
