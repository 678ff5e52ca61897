package cores

import (
	"cmp"
	"slices"
)

// A Union is the addresses of one core that are in at least one of several intervals.
type Union struct {
	// steps are in order of address. Each has the number of intervals over the addresses from its
	// own to the next one's. Neighbours have different depths, and the last depth is 0.
	steps []step
	bytes uint64
}

type step struct {
	address uint64
	depth   int
}

// Bytes returns the number of covered addresses.
func (u *Union) Bytes() uint64 { return u.bytes }

// Add adds the interval from start up to but not including end.
func (u *Union) Add(start, end uint64) { u.change(start, end, 1) }

// Remove removes an interval that was added.
func (u *Union) Remove(start, end uint64) { u.change(start, end, -1) }

// change adds delta to the depth of the addresses from start to end.
func (u *Union) change(start, end uint64, delta int) {
	first := u.split(start)
	last := u.split(end)
	for i := first; i < last; i++ {
		length := u.steps[i+1].address - u.steps[i].address
		if u.steps[i].depth == 0 {
			u.bytes += length
		}
		u.steps[i].depth += delta
		if u.steps[i].depth == 0 {
			u.bytes -= length
		}
	}
	// Only at the two borders can neighbours have become equal.
	u.join(last)
	u.join(first)
}

// split ensures that a step begins at the address and returns its index.
func (u *Union) split(address uint64) int {
	i, found := slices.BinarySearchFunc(u.steps, address, func(s step, a uint64) int { return cmp.Compare(s.address, a) })
	if !found {
		depth := 0
		if i > 0 {
			depth = u.steps[i-1].depth
		}
		u.steps = slices.Insert(u.steps, i, step{address, depth})
	}
	return i
}

// join removes step i if it has the depth of the step before it.
func (u *Union) join(i int) {
	before := 0
	if i > 0 {
		before = u.steps[i-1].depth
	}
	if u.steps[i].depth == before {
		u.steps = slices.Delete(u.steps, i, i+1)
	}
}
