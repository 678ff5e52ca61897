package memory

import (
	"cmp"

	"ttmem/tracer/event"
)

// Capacities has the capacity of each region.
type Capacities [event.BankedRegions]event.Capacity

// An Allocator is an open allocator of a process, at an address of its memory. Devices must not be modified.
type Allocator struct {
	PID        int
	Address    uint64
	Devices    []int
	Capacities Capacities
}

// CompareCapacity orders capacities by the total of all banks.
func CompareCapacity(a, b event.Capacity) int {
	return cmp.Or(cmp.Compare(a.Total(), b.Total()), cmp.Compare(a.Banks, b.Banks))
}

// With returns the capacities of two allocators of a process on a chip. A mesh and its submeshes have
// an allocator each for the same memory: the larger one counts. The allocator of a sub-device has a part
// of L1 that the one of the mesh lacks: they add up.
func (a Capacities) With(b Capacities) Capacities {
	for r := range a {
		one, other := a[r], b[r]
		if one.Base > other.Base {
			one, other = other, one
		}
		switch {
		case event.Region(r) == event.L1 && one.Base > 0 && one.Base+one.BytesPerBank == other.Base && one.BytesPerBank > 0:
			a[r] = event.Capacity{Banks: max(one.Banks, other.Banks), Base: one.Base, BytesPerBank: one.BytesPerBank + other.BytesPerBank}
		case CompareCapacity(b[r], a[r]) > 0:
			a[r] = b[r]
		}
	}
	return a
}

// SharedCapacities returns the capacities of a chip that several processes have open. A process that
// reserves more of a bank for L1_SMALL or for traces has less L1 or DRAM. If they differ, the chip
// has the largest reservation and the smallest remainder, so that its regions add up. Unknown
// capacities do not count.
func SharedCapacities(open []Capacities) (chip Capacities) {
	for r := range chip {
		one := &chip[r]
		for _, own := range open {
			order := CompareCapacity(own[r], *one)
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
