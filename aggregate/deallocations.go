package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// deallocations are the latest free of each of the latest call stacks that freed buffers of a process:
// of at least keptFrees stacks, and of at most twice as many.
type deallocations struct {
	young, old map[uint64]*memory.Deallocation
}

const keptFrees = 128

// add adds a free whose call stack is known.
func (d *deallocations) add(b *buffer, e *event.Event) {
	if e.Stack == nil || e.Reason.IsEnd() {
		return
	}
	id := memory.StackID(e.Stack)
	one := d.young[id]
	if one == nil {
		if len(d.young) == keptFrees {
			d.old, d.young = d.young, nil
		}
		if d.young == nil {
			d.young = make(map[uint64]*memory.Deallocation)
		}
		one = new(memory.Deallocation)
		d.young[id] = one
	}
	*one = memory.Deallocation{
		TimeNs: e.TimeNs, BufferID: b.BufferID, Address: b.Address, Region: b.Region, Devices: b.Devices, AllocatedBy: b.Stack, FreedBy: e.Stack,
	}
}

// Deallocations returns the latest buffer that each of the latest call stacks of a process freed, the
// newest first. Those that ended with their device or process are not among them.
func (s *State) Deallocations(pid int) []memory.Deallocation {
	p := s.known(pid)
	if p == nil {
		return nil
	}
	all := make(map[uint64]memory.Deallocation)
	for _, some := range []map[uint64]*memory.Deallocation{p.freed.old, p.freed.young} {
		for id, one := range some {
			all[id] = *one
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b memory.Deallocation) int {
		return cmp.Or(cmp.Compare(b.TimeNs, a.TimeNs), cmp.Compare(b.BufferID, a.BufferID))
	})
}
