package analyze

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// FreedBy returns what may have freed the tensor that a process used after its memory was freed: the
// calls that deallocated tensors, the newest first. The message of the library does not say which
// tensor it was. The end of a tensor cannot be it, because nothing can use the tensor afterwards. With
// an address, it returns only what freed a buffer there.
func FreedBy(s *aggregate.State, pid int, address uint64) []memory.Deallocation {
	return slices.DeleteFunc(s.Deallocations(pid), func(d memory.Deallocation) bool {
		return address != 0 && d.Address != address || !name.Deallocates(d.FreedBy.Frames())
	})
}

// FreedAt returns the buffer that had an address in the banks of a region of some chips last; nil if that
// is not known. It may still be live.
func (h *History) FreedAt(devices []int, region event.Region, address uint64) *Use {
	return h.places.get(h.placeKey(devices, region, address))
}
