package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// An allocator is one that a process has open, on the chips of a device or a
// mesh.
type allocator struct {
	set        *deviceSet
	capacities capacities
	// since, board and so on are those of its event.
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

// name takes the board and the architecture, where the event has them.
func (c *chip) name(e *event.Event) {
	if e.Board != "" {
		c.board = e.Board
	}
	if e.Arch != "" {
		c.arch = e.Arch
	}
}

// closeDevice drops what is still held with the allocator.
//
// The programs of the chip stay: they end with their own events, and the
// library drops an allocator's buffers at times without closing the device.
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

// closeArena ends all that is in an arena.
func (s *State) closeArena(p *process, a *arena, now uint64) {
	s.endRun(a.set, a)
	s.between.endRun(p, a, now)
	p.buffers.removeAll(a, s.endIn(p, a.set, a, now, event.ReasonDeviceClose))
	a.closed = true
	p.name.run.open = p.buffers.len > 0
	delete(a.set.arenas, a.allocator)
}

// close takes the allocator off its chips.
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

// closeAll closes all allocators of the process at once: which is last does not
// matter for the capacities that stay.
func (p *process) closeAll() {
	for _, a := range p.allocators {
		a.remove()
	}
	for _, a := range p.allocators {
		a.updateCapacities()
	}
	clear(p.allocators)
}
