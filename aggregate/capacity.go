package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

// capacities are by region.
type capacities [event.BankedRegions]event.Capacity

// total is the capacity of all banks, in bytes.
func total(c event.Capacity) uint64 { return uint64(c.Banks) * c.BytesPerBank }

// compareCapacities orders capacities by what all banks have.
func compareCapacities(a, b event.Capacity) int {
	return cmp.Or(cmp.Compare(total(a), total(b)), cmp.Compare(a.Banks, b.Banks))
}

// updateCapacities is to be called after an allocator of the process was opened or
// closed. The process has of each region what the largest of its allocators has: a
// mesh and its submeshes have one each, all on the same memory.
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

// updateCapacities makes the chip's those of the processes that have it open. One
// that reserves more of a bank for L1_SMALL or for traces has so much less of L1 or
// DRAM: where they differ it is the largest reservation and the smallest rest, so
// that the regions of the chip fit together.
func (c *chip) updateCapacities() {
	if len(c.open) == 0 {
		return
	}
	for r := range c.capacities {
		c.capacities[r] = shared(event.Region(r), maps.Keys(c.open))
	}
}

// shared is the capacity of a region for all who have its chip open; 0 says that a
// process does not tell.
func shared(r event.Region, open func(func(*processChip) bool)) event.Capacity {
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

// capacities are the process's own, also when it has closed the chip; those of the
// chip where it has told none.
func (c *processChip) capacities() *capacities {
	if c.own == (capacities{}) {
		return &c.chip.capacities
	}
	return &c.own
}
