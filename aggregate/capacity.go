package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

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
