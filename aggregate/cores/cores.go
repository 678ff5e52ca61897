// Package cores has sets of cores, and how much of each core's L1 buffers and programs occupy.
// It is not part of ttmem's Go library: it changes without notice.
package cores

import (
	"math/bits"
	"slices"

	"ttmem/tracer/event"
)

const (
	// maxCores is far above the number of cores of any chip, and side that of its rows and columns. A
	// larger set comes from a failed read of the traced process.
	maxCores, side = 512, 64
	// maxAllCores is the number of cores of all sets of a process. All rectangles of the largest chip
	// have half as many.
	maxAllCores = 1 << 18
)

// A Core is the logical coordinates of a core.
type Core struct{ X, Y uint16 }

// A Set is the cores of a circular buffer. Two sets from the same Sets are equal if their
// pointers are.
type Set struct {
	ranges []event.CoreRange
	cores  []Core
}

// Ranges returns the ranges of the set; nil if there is no set. They must not be modified.
func (s *Set) Ranges() []event.CoreRange {
	if s == nil {
		return nil
	}
	return slices.Clip(s.ranges)
}

// Len returns the number of different cores.
func (s *Set) Len() int { return len(s.cores) }

// Has reports whether the core is in the set.
func (s *Set) Has(c Core) bool {
	return slices.ContainsFunc(s.ranges, func(r event.CoreRange) bool {
		return r.X0 <= c.X && c.X <= r.X1 && r.Y0 <= c.Y && c.Y <= r.Y1
	})
}

// Sets has one Set of a process for each list of ranges. The zero value is empty.
type Sets struct {
	sets map[string]*Set // by the encoded ranges
	all  int             // cores of all sets
}

// Full reports whether there may be too many sets for another one.
func (m *Sets) Full() bool { return m.all > maxAllCores-maxCores }

// Of returns the set of the cores in these ranges; nil if there are none, if the ranges are
// invalid, or if there are too many sets.
func (m *Sets) Of(ranges []event.CoreRange) *Set {
	key := make([]byte, 0, 64)
	cores := 0
	for _, r := range ranges {
		if r.X0 > r.X1 || r.Y0 > r.Y1 || r.X1 >= side || r.Y1 >= side {
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
	if set := m.sets[string(key)]; set != nil {
		return set
	}
	if m.all += cores; m.all > maxAllCores {
		m.all -= cores
		return nil
	}
	set := &Set{ranges: slices.Clone(ranges)}
	seen := make(map[Core]bool, cores)
	for _, r := range ranges {
		for x := int(r.X0); x <= int(r.X1); x++ {
			for y := int(r.Y0); y <= int(r.Y1); y++ {
				if c := (Core{uint16(x), uint16(y)}); !seen[c] {
					seen[c] = true
					set.cores = append(set.cores, c)
				}
			}
		}
	}
	if m.sets == nil {
		m.sets = make(map[string]*Set)
	}
	m.sets[string(key)] = set
	return set
}

// A Place is one range of addresses, from Start up to but not including End, on each core of a
// set.
type Place struct {
	Set        *Set
	Start, End uint64
}

// Place returns the place of a CBAlloc. ok is false if the event has no cores or its addresses
// are invalid.
func (m *Sets) Place(e *event.Event) (p Place, ok bool) {
	set := m.Of(e.Cores)
	end, carry := bits.Add64(e.Address, e.SizeBytes, 0)
	return Place{set, e.Address, end}, set != nil && carry == 0
}

// BytesPerCore returns the size on each core.
func (p Place) BytesPerCore() uint64 { return p.End - p.Start }

// Bytes returns the sum over the cores.
func (p Place) Bytes() uint64 { return p.BytesPerCore() * uint64(p.Set.Len()) }
