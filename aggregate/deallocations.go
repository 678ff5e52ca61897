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
	// recent caches entries of young by the last bits of their keys.
	recent [recentFrees]*memory.Deallocation
}

const keptFrees, recentFrees = 128, 64

// add adds a free whose call stack is known.
func (d *deallocations) add(b *buffer, e *event.Event) {
	if e.Stack == nil || e.Reason.IsEnd() {
		return
	}
	id := memory.StackID(e.Stack)
	recent := &d.recent[id%recentFrees]
	if one := *recent; one == nil || one.FreedBy != e.Stack {
		*recent = d.entry(id)
	}
	**recent = memory.Deallocation{
		TimeNs: e.TimeNs, BufferID: b.BufferID, Address: b.Address, Region: b.Region, Devices: b.Devices, AllocatedBy: b.Stack, FreedBy: e.Stack,
	}
}

// entry returns the entry of a call stack in young, and adds it if needed.
func (d *deallocations) entry(id uint64) *memory.Deallocation {
	one := d.young[id]
	if one == nil {
		if len(d.young) == keptFrees {
			*d = deallocations{old: d.young}
		}
		if d.young == nil {
			d.young = make(map[uint64]*memory.Deallocation)
		}
		one = new(memory.Deallocation)
		d.young[id] = one
	}
	return one
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
