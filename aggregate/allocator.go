package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// An allocator is an open allocator of a process, on the chips of a device or a mesh.
type allocator struct {
	set        *deviceSet
	capacities memory.Capacities
	// subDevices is what each bank of L1 lacks for the allocators of sub-devices.
	subDevices uint64
}

// Allocators returns the open allocators of all processes.
func (s *State) Allocators() (list []memory.Allocator) {
	for _, p := range s.byPID() {
		for _, address := range sortedKeys(p.allocators) {
			a := p.allocators[address]
			list = append(list, memory.Allocator{PID: p.pid, Address: address, Devices: a.set.ids, Capacities: a.capacities})
		}
	}
	return list
}

func (p *process) openDevice(e *event.Event) {
	if p.allocators[e.Allocator] == nil && len(p.allocators) >= maxAllocators {
		p.beyond()
		return
	}
	if !p.maySpend(len(p.allocators)*len(e.Devices), e.TimeNs) {
		return
	}
	open := e.Opened()
	a := &allocator{set: p.set(e.Devices), capacities: open.Capacities}
	if old := p.allocators[e.Allocator]; old != nil && e.Cause != "" { // its capacities change
		had, has := old.capacities[event.L1].BytesPerBank+old.subDevices, a.capacities[event.L1].BytesPerBank
		a.subDevices = had - min(had, has)
	}
	p.closeAllocator(e.Allocator)
	p.allocators[e.Allocator] = a
	for _, c := range a.set.chips {
		c.chip.board = cmp.Or(open.Board, c.chip.board)
		c.chip.arch = cmp.Or(open.Arch, c.chip.arch)
	}
	p.updateCapacities(a.set.chips)
}

// closeDevice ends the live buffers of an allocator.
//
// The programs on the chip stay, because separate events report their end, and the library
// sometimes frees an allocator's buffers without closing the device.
func (p *process) closeDevice(e *event.Event) {
	for _, set := range p.sets {
		if a := set.arenas[e.Allocator]; a != nil {
			p.closeArena(a, e.TimeNs)
		}
	}
	if a := p.allocators[e.Allocator]; a != nil {
		p.dropTraces(func(t *trace) bool { return t.set == a.set })
	}
	p.closeAllocator(e.Allocator)
}

// closeArena ends all buffers of an arena.
func (p *process) closeArena(a *arena, now uint64) {
	count := p.closed(a, now, event.ReasonDeviceClose)
	p.endUses(a)
	p.hold(-count)
	p.buffers.RemoveAll(count, func(b *buffer) bool { return b.arena == a })
	a.closed = true
	p.name.run.Open = p.buffers.Len() > 0
	if delete(a.set.arenas, a.allocator); a.allocator != 0 {
		p.link(-1)
	}
}

func (p *process) closeAllocator(address uint64) {
	a := p.allocators[address]
	if a == nil {
		return
	}
	delete(p.allocators, address)
	p.updateCapacities(a.set.chips)
}

// updateCapacities computes the capacities of chips after a process opened or closed an
// allocator on them. They stay when the last allocator is closed.
func (p *process) updateCapacities(chips []*processChip) {
	sum := make(map[*processChip]memory.Capacities)
	for _, a := range sortedValues(p.allocators) {
		for _, c := range a.set.chips {
			sum[c] = sum[c].With(a.capacities)
		}
	}
	for _, c := range chips {
		own := sum[c]
		c.countCapacities(-1)
		if c.open = own != (memory.Capacities{}); c.open {
			c.own = own
		}
		c.countCapacities(1)
		if len(c.chip.open) > 0 {
			c.chip.capacities = memory.SharedCapacities(slices.Collect(maps.Keys(c.chip.open)))
		}
		c.countOnce()
	}
}

// countCapacities adds n processes with the own capacities to the chip, if it is open; n may be -1.
func (c *processChip) countCapacities(n int) {
	if !c.open {
		return
	}
	if c.chip.open == nil {
		c.chip.open = make(map[memory.Capacities]int)
	}
	if c.chip.open[c.own] += n; c.chip.open[c.own] == 0 {
		delete(c.chip.open, c.own)
	}
}

// capacities returns the capacities that the process has seen, also after it closed the chip;
// those of the chip if they are not known.
func (c *processChip) capacities() *memory.Capacities {
	if c.own == (memory.Capacities{}) {
		return &c.chip.capacities
	}
	return &c.own
}

// isSubDevice reports whether an arena is of the allocator of a sub-device, which has only some of the
// banks. The sub-devices of a chip have the same addresses, on different cores.
func (p *process) isSubDevice(a *arena) bool {
	of := p.allocators[a.allocator]
	return of != nil && slices.ContainsFunc(of.set.chips, func(c *processChip) bool {
		return of.capacities[event.L1].Banks < c.capacities()[event.L1].Banks
	})
}

// banks returns the number of banks of a region of an arena's allocator; 0 if it is not known.
func (p *process) banks(a *arena, region event.Region) uint16 {
	if of := p.allocators[a.allocator]; of != nil && of.set == a.set {
		return uint16(of.capacities[region].Banks)
	}
	for _, c := range a.set.chips {
		return uint16(c.capacities()[region].Banks)
	}
	return 0
}
