package aggregate

import (
	"math/bits"
	"slices"

	"ttmem/tracer/event"
)

// maxCores is far above the number of cores of any chip. A set of more is what
// a failed read looks like.
const maxCores = 4096

type core struct{ x, y uint16 }

// A coreSet is cores that something is on; equal sets are the same pointer.
type coreSet struct {
	ranges []event.CoreRange
	cores  []core
}

// coreSets are the sets that were met, by their ranges.
type coreSets map[string]*coreSet

// set returns the set of the cores of these ranges, or nil where they make
// none.
func (m coreSets) set(ranges []event.CoreRange) *coreSet {
	key := make([]byte, 0, 64)
	cores := 0
	for _, r := range ranges {
		if r.X0 > r.X1 || r.Y0 > r.Y1 || r.Cores() > maxCores {
			return nil
		}
		if cores += r.Cores(); cores > maxCores {
			return nil
		}
		for _, n := range [...]uint16{r.X0, r.Y0, r.X1, r.Y1} {
			key = append(key, byte(n), byte(n>>8))
		}
	}
	if cores == 0 {
		return nil
	}
	if set := m[string(key)]; set != nil {
		return set
	}
	set := &coreSet{ranges: slices.Clone(ranges)}
	seen := make(map[core]bool, cores)
	for _, r := range ranges {
		for x := int(r.X0); x <= int(r.X1); x++ {
			for y := int(r.Y0); y <= int(r.Y1); y++ {
				if c := (core{uint16(x), uint16(y)}); !seen[c] {
					seen[c] = true
					set.cores = append(set.cores, c)
				}
			}
		}
	}
	m[string(key)] = set
	return set
}

// layout returns where a CBAlloc lies on each of its cores. It is not ok where
// that is no place.
func (m coreSets) layout(e *event.Event) (l layout, ok bool) {
	set := m.set(e.Cores)
	end, carry := bits.Add64(e.Address, e.SizeBytes, 0)
	return layout{set, e.Address, end}, set != nil && carry == 0
}

// A coreMap is what the circular buffers of all programs take of each core:
// the union of their places, since programs use the same space one after the
// other. It is exact at any time and is kept up with each entry.
//
// Most entries are copies of what another program has: they only count up in
// layouts. The first of a kind touches each of its cores, whose cost is the
// number of borders that it spans there.
type coreMap struct {
	layouts map[layout]int
	cores   map[core]*extent
	// max is the largest union of any core, and bytes the sum over the cores.
	max, bytes uint64
}

// A layout is one place on each core of a set.
type layout struct {
	set        *coreSet
	start, end uint64
}

func (m *coreMap) add(l layout) {
	if l.start == l.end {
		return
	}
	if m.layouts == nil {
		m.layouts = make(map[layout]int)
		m.cores = make(map[core]*extent)
	}
	m.layouts[l]++
	if m.layouts[l] > 1 {
		return
	}
	for _, c := range l.set.cores {
		x := m.cores[c]
		if x == nil {
			x = &extent{}
			m.cores[c] = x
		}
		before := x.covered
		x.change(l.start, l.end, 1)
		m.bytes += x.covered - before
		m.max = max(m.max, x.covered)
	}
}

func (m *coreMap) remove(l layout) {
	if l.start == l.end {
		return
	}
	m.layouts[l]--
	if m.layouts[l] > 0 {
		return
	}
	delete(m.layouts, l)
	for _, c := range l.set.cores {
		x := m.cores[c]
		before := x.covered
		x.change(l.start, l.end, -1)
		m.bytes -= before - x.covered
		if x.covered == 0 {
			delete(m.cores, c)
		}
	}
	m.max = 0
	for _, x := range m.cores {
		m.max = max(m.max, x.covered)
	}
}

// An extent is how many intervals lie over each address of one core.
type extent struct {
	// steps are in order of address. Each says how many intervals lie over the
	// addresses from its own to the next one's. Neighbours differ, and the last
	// has none.
	steps []step
	// covered is how many bytes lie under any interval.
	covered uint64
}

type step struct {
	address uint64
	depth   int
}

// change adds delta to the depth of the addresses from start to end.
func (x *extent) change(start, end uint64, delta int) {
	first := x.split(start)
	last := x.split(end)
	for i := first; i < last; i++ {
		length := x.steps[i+1].address - x.steps[i].address
		if x.steps[i].depth == 0 {
			x.covered += length
		}
		x.steps[i].depth += delta
		if x.steps[i].depth == 0 {
			x.covered -= length
		}
	}
	// Only at the two borders can neighbours have become equal.
	x.join(last)
	x.join(first)
}

// split makes a step begin at the address and returns its index.
func (x *extent) split(address uint64) int {
	i, found := slices.BinarySearchFunc(x.steps, address, func(s step, a uint64) int {
		switch {
		case s.address < a:
			return -1
		case s.address > a:
			return 1
		}
		return 0
	})
	if !found {
		depth := 0
		if i > 0 {
			depth = x.steps[i-1].depth
		}
		x.steps = slices.Insert(x.steps, i, step{address, depth})
	}
	return i
}

// join removes step i where it is no step: as deep as what is before it.
func (x *extent) join(i int) {
	before := 0
	if i > 0 {
		before = x.steps[i-1].depth
	}
	if x.steps[i].depth == before {
		x.steps = slices.Delete(x.steps, i, i+1)
	}
}
