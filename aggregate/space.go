package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// A Space is the use of one region, address by address. All banks of a region are used
// alike: an allocator assigns the same addresses in each of them.
type Space struct {
	// Region is one that has banks, and Banks is their number.
	Region event.Region
	Banks  uint32
	// Start and End are the addresses that each bank has; both are 0 if they are not
	// known.
	Start, End uint64
	// Blocks are the buffers in order of address. They overlap only if several
	// allocators assign the same memory, as those of a mesh and its submeshes do, or
	// those of several processes.
	Blocks []Buffer
	// Holes are what no buffer occupies, in order of address. There are none if Start
	// and End are not known.
	Holes []addresses.Hole
	// FreeSpace adds up the holes. With one allocator it equals what tt-metal's
	// GetMemoryView returns.
	addresses.FreeSpace
}

// Known reports whether the addresses of the region are known.
func (s *Space) Known() bool { return s.End > s.Start }

// Space returns the use of a region of a chip by all processes; nil for an unknown chip
// and for a region without banks. Its cost is proportional to the number of live buffers.
func (s *State) Space(device int, region event.Region) *Space {
	c := s.chips[device]
	if c == nil || int(region) >= event.BankedRegions {
		return nil
	}
	return s.space(region, c.capacities[region], func(b *buffer) bool { return slices.Contains(b.set.ids, device) })
}

// AllocatorSpace returns the use of a region by one allocator, which is what the library
// itself reports; nil for an allocator that is not open.
func (s *State) AllocatorSpace(pid int, allocator uint64, region event.Region) *Space {
	p := s.known(pid)
	if p == nil || p.allocators[allocator] == nil || int(region) >= event.BankedRegions {
		return nil
	}
	return s.space(region, p.allocators[allocator].capacities[region], func(b *buffer) bool {
		return b.set.process.pid == pid && b.allocator == allocator
	})
}

func (s *State) space(region event.Region, capacity event.Capacity, selected func(*buffer) bool) *Space {
	space := &Space{Region: region, Banks: capacity.Banks}
	for _, p := range s.byPID() {
		space.Blocks = append(space.Blocks, p.list(func(b *buffer) bool { return b.region == region && selected(b) })...)
	}
	slices.SortStableFunc(space.Blocks, func(a, b Buffer) int { return cmp.Compare(a.Address, b.Address) })
	if capacity.Base == 0 {
		return space
	}
	space.Start, space.End = capacity.Base, capacity.Base+capacity.BytesPerBank
	blocks := make([]addresses.Block, len(space.Blocks))
	for i := range space.Blocks {
		h := &space.Blocks[i]
		blocks[i] = addresses.Block{Start: h.Address, End: h.Address + h.BytesPerBank}
	}
	for hole := range addresses.Holes(blocks, space.Start, space.End) {
		space.Holes = append(space.Holes, hole)
		space.FreeSpace.Add(hole)
	}
	return space
}
