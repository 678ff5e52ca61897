package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

// An allocator is an open allocator of a process, on the chips of a device or a mesh.
type allocator struct {
	set        *deviceSet
	capacities capacities
	// since, board and the rest come from its DeviceOpen event.
	since              uint64
	board, arch        string
	mesh, beforeAttach bool
}

func (s *State) openDevice(e *event.Event) {
	p := s.process(e)
	if old := p.allocators[e.Allocator]; old != nil {
		old.close()
	}
	a := &allocator{
		set: s.set(p, e.Devices), capacities: e.Capacities, since: e.TimeNs,
		board: e.Board, arch: e.Arch, mesh: e.Mesh, beforeAttach: e.BeforeAttach,
	}
	p.allocators[e.Allocator] = a
	for _, c := range a.set.chips {
		c.chip.name(e)
		if a.capacities != (capacities{}) {
			c.open = append(c.open, a)
			c.updateCapacities()
		}
	}
}

// name sets the board and the architecture if the event has them.
func (c *chip) name(e *event.Event) {
	if e.Board != "" {
		c.board = e.Board
	}
	if e.Arch != "" {
		c.arch = e.Arch
	}
}

// closeDevice ends the live buffers of an allocator.
//
// The programs on the chip stay: they have events of their own, and the library sometimes
// frees an allocator's buffers without closing the device.
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
	if a := p.allocators[e.Allocator]; a != nil {
		delete(p.allocators, e.Allocator)
		a.close()
	}
}

// closeArena ends all buffers of an arena.
func (s *State) closeArena(p *process, a *arena, now uint64) {
	s.endRun(a.set, a)
	s.between.endRun(p, a, now)
	p.buffers.removeAll(a, s.endIn(p, a.set, a, now, event.ReasonDeviceClose))
	a.closed = true
	p.name.run.open = p.buffers.len > 0
	delete(a.set.arenas, a.allocator)
}

// close removes the allocator from its chips.
func (a *allocator) close() {
	a.remove()
	a.updateCapacities()
}

func (a *allocator) remove() {
	for _, c := range a.set.chips {
		if i := slices.Index(c.open, a); i >= 0 {
			c.open = slices.Delete(c.open, i, i+1)
		}
	}
}

func (a *allocator) updateCapacities() {
	for _, c := range a.set.chips {
		c.updateCapacities()
	}
}

// closeAll closes all allocators of the process at once, so that the capacities that remain
// do not depend on the order.
func (p *process) closeAll() {
	for _, a := range p.allocators {
		a.remove()
	}
	for _, a := range p.allocators {
		a.updateCapacities()
	}
	clear(p.allocators)
}

// capacities has the capacity of each region.
type capacities [event.BankedRegions]event.Capacity

// total returns the capacity of all banks, in bytes.
func total(c event.Capacity) uint64 { return uint64(c.Banks) * c.BytesPerBank }

// compareCapacities orders capacities by the total of all banks.
func compareCapacities(a, b event.Capacity) int {
	return cmp.Or(cmp.Compare(total(a), total(b)), cmp.Compare(a.Banks, b.Banks))
}

// updateCapacities must be called after an allocator of the process is opened or closed.
// The capacity of a region is that of the largest allocator: a mesh and its submeshes have
// one each for the same memory.
func (c *processChip) updateCapacities() {
	if len(c.open) > 0 {
		clear(c.own[:])
		for _, a := range c.open {
			for r := range c.own {
				c.own[r] = slices.MaxFunc([]event.Capacity{c.own[r], a.capacities[r]}, compareCapacities)
			}
		}
		c.chip.open[c] = true
	} else {
		delete(c.chip.open, c)
	}
	c.chip.updateCapacities()
}

// updateCapacities computes the chip's capacities from the processes that have it open. A
// process that reserves more of a bank for L1_SMALL or for traces has less L1 or DRAM. If
// they differ, the chip has the largest reservation and the smallest remainder, so that its
// regions add up.
func (c *chip) updateCapacities() {
	if len(c.open) == 0 {
		return
	}
	for r := range c.capacities {
		c.capacities[r] = sharedCapacity(event.Region(r), maps.Keys(c.open))
	}
}

// sharedCapacity returns the capacity of a region among the processes that have the chip
// open. Processes whose capacity is not known do not count.
func sharedCapacity(r event.Region, open func(func(*processChip) bool)) event.Capacity {
	var one event.Capacity
	for c := range open {
		other := c.own[r]
		order := compareCapacities(other, one)
		if r != event.L1Small && r != event.Trace {
			order = -order
		}
		if total(other) > 0 && (order > 0 || total(one) == 0) {
			one = other
		}
	}
	return one
}

// capacities returns the process's own, also after it closed the chip; those of the chip if
// its own are not known.
func (c *processChip) capacities() *capacities {
	if c.own == (capacities{}) {
		return &c.chip.capacities
	}
	return &c.own
}
