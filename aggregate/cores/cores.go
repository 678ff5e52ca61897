// Package cores has sets of cores, and how much of each core's L1 buffers and programs occupy.
package cores

import (
	"math/bits"
	"slices"

	"ttmem/tracer/event"
)

// maxCores is far above the number of cores of any chip. A larger set comes from a failed read of
// the traced process.
const maxCores = 4096

// A Core is the logical coordinates of a core.
type Core struct{ X, Y uint16 }

// A Set is the cores of a circular buffer. Two sets from the same Sets are equal if their
// pointers are.
type Set struct {
	ranges []event.CoreRange
	cores  []Core
}

// Ranges returns the ranges of the set. They must not be modified.
func (s *Set) Ranges() []event.CoreRange { return slices.Clip(s.ranges) }

// Len returns the number of different cores.
func (s *Set) Len() int { return len(s.cores) }

// Has reports whether the core is in the set.
func (s *Set) Has(c Core) bool { return slices.Contains(s.cores, c) }

// Sets has one Set for each list of ranges, by the encoded ranges.
type Sets map[string]*Set

// Of returns the set of the cores in these ranges; nil if there are none, or if the ranges are
// invalid.
func (m Sets) Of(ranges []event.CoreRange) *Set {
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
	m[string(key)] = set
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
func (m Sets) Place(e *event.Event) (p Place, ok bool) {
	set := m.Of(e.Cores)
	end, carry := bits.Add64(e.Address, e.SizeBytes, 0)
	return Place{set, e.Address, end}, set != nil && carry == 0
}

// BytesPerCore returns the size on each core.
func (p Place) BytesPerCore() uint64 { return p.End - p.Start }

// Bytes returns the sum over the cores.
func (p Place) Bytes() uint64 { return p.BytesPerCore() * uint64(p.Set.Len()) }
