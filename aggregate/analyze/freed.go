package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// FreedBy returns what may have freed the tensor that a failed operation used: the calls that
// deallocated tensors before, the newest first. The message of the library does not say which tensor it
// was. The end of a tensor cannot be it, because nothing can use the tensor afterwards.
func FreedBy(f *memory.Failure) []memory.Deallocation {
	return slices.DeleteFunc(slices.Clone(f.Freed), func(d memory.Deallocation) bool { return !name.Deallocates(d.FreedBy.Frames()) })
}

// FreedAt returns the buffer that had an address in the banks of a region of some chips last; nil if that
// is not known. It may still be live.
func (h *History) FreedAt(devices []int, region event.Region, address uint64) *Use {
	return h.places.get(h.placeKey(devices, region, address))
}
