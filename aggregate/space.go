package aggregate

import (
	"cmp"
	"math/bits"
	"slices"

	"ttmem/tracer/event"
)

// A Space is how one region is used, address by address. All banks of the region are
// used alike: an allocator gives the same addresses away in each of them.
type Space struct {
	// Region is L1, DRAM or another that has banks, of which there are Banks.
	Region event.Region
	Banks  uint32
	// Start and End are the addresses between which each bank can be given away; both
	// are 0 where that is not known: a recording of an older ttmem does not tell.
	Start, End uint64
	// Blocks are the buffers in order of their addresses. They overlap only where
	// several allocators give away the same memory: a mesh and its submeshes do, and
	// so do several processes.
	Blocks []Held
	// Holes are what no buffer has, in order of their addresses: nothing else where
	// Start and End are not known.
	Holes []Hole
	// FreeBytesPerBank is the sum of the holes, LargestFreeBytesPerBank the largest of
	// them: what tt-metal's GetMemoryView says where there is one allocator.
	FreeSpace
}

// FreeSpace is what no buffer has of each bank of a region, in bytes.
type FreeSpace struct {
	FreeBytesPerBank        uint64 `json:"free_bytes_per_bank"`
	LargestFreeBytesPerBank uint64 `json:"largest_free_bytes_per_bank"`
}

// A Hole is addresses that no buffer has.
type Hole struct {
	Address uint64 `json:"address"`
	Bytes   uint64 `json:"bytes"`
}

// Known reports whether it is known where the region lies in its banks.
func (s *Space) Known() bool { return s.End > s.Start }

// Space returns how a region of a chip is used by all processes. It is nil for a chip
// that is not known, and for a region that has no banks. Its cost is that of all
// buffers of the region.
func (s *State) Space(device int, region event.Region) *Space {
	c := s.chips[device]
	if c == nil || int(region) >= event.BankedRegions {
		return nil
	}
	return s.space(region, c.capacities[region], func(b *buffer) bool { return b.set.has(device) })
}

// AllocatorSpace returns how one allocator has given its region away: what the library
// counts itself. It is nil for an allocator that is not open.
func (s *State) AllocatorSpace(pid int, allocator uint64, region event.Region) *Space {
	p := s.known(pid)
	if p == nil || p.allocators[allocator] == nil || int(region) >= event.BankedRegions {
		return nil
	}
	return s.space(region, p.allocators[allocator].capacities[region], func(b *buffer) bool {
		return b.set.process.pid == pid && b.allocator == allocator
	})
}

func (s *State) space(region event.Region, of event.Capacity, wanted func(*buffer) bool) *Space {
	view := &Space{Region: region, Banks: of.Banks}
	for _, p := range s.byPID() {
		view.Blocks = append(view.Blocks, p.list(func(b *buffer) bool { return b.region == region && wanted(b) })...)
	}
	slices.SortStableFunc(view.Blocks, func(a, b Held) int { return cmp.Compare(a.Address, b.Address) })
	if of.Base == 0 {
		return view
	}
	view.Start, view.End = of.Base, of.Base+of.BytesPerBank
	blocks := make([]block, len(view.Blocks))
	for i := range view.Blocks {
		h := &view.Blocks[i]
		blocks[i] = block{h.Address, h.Address + h.BytesPerBank}
	}
	for hole := range holes(blocks, view.Start, view.End) {
		view.Holes = append(view.Holes, hole)
		view.FreeSpace.add(hole.Bytes)
	}
	return view
}

func (f *FreeSpace) add(hole uint64) {
	f.FreeBytesPerBank += hole
	f.LargestFreeBytesPerBank = max(f.LargestFreeBytesPerBank, hole)
}

// has reports whether the chip is one of the set.
func (d *deviceSet) has(device int) bool { return slices.Contains(d.ids, device) }

// A block is the addresses of a buffer: from start, up to and without end.
type block struct{ start, end uint64 }

// compareBlocks orders blocks by their addresses.
func compareBlocks(a, b block) int {
	if a.start == b.start {
		return cmp.Compare(a.end, b.end)
	}
	return cmp.Compare(a.start, b.start)
}

// sortBlocks brings blocks into the order of their addresses. A million of them have
// to be put in order while somebody waits: addresses of one region differ in few bits,
// of which each pass takes 11.
func sortBlocks(blocks []block) {
	const digits = 11
	if len(blocks) < 1<<digits {
		slices.SortFunc(blocks, compareBlocks)
		return
	}
	var differ uint64
	for _, b := range blocks {
		differ |= b.start ^ blocks[0].start
	}
	from, to := blocks, make([]block, len(blocks))
	for shift := bits.TrailingZeros64(differ); differ>>shift != 0; shift += digits {
		var next [1 << digits]int
		digit := func(b block) int { return int(b.start >> shift & (1<<digits - 1)) }
		for _, b := range from {
			next[digit(b)]++
		}
		at := 0
		for i, n := range next {
			next[i], at = at, at+n
		}
		for _, b := range from {
			to[next[digit(b)]] = b
			next[digit(b)]++
		}
		from, to = to, from
	}
	copy(blocks, from)             // does nothing where they are the same
	for i := 0; i < len(blocks); { // few begin at the same address, and seldom end at different ones
		j := i + 1
		for j < len(blocks) && blocks[j].start == blocks[i].start {
			j++
		}
		slices.SortFunc(blocks[i:j], compareBlocks)
		i = j
	}
}

// holes are what blocks, which are in order, leave between two addresses.
func holes(blocks []block, start, end uint64) func(func(Hole) bool) {
	return func(yield func(Hole) bool) {
		for _, b := range blocks {
			if b.start >= end {
				break
			}
			if b.start > start && !yield(Hole{start, b.start - start}) {
				return
			}
			start = max(start, b.end)
		}
		if start < end {
			yield(Hole{start, end - start})
		}
	}
}

// freeOf is what blocks, which are in order, leave free.
func freeOf(blocks []block, capacity event.Capacity) *FreeSpace {
	free := &FreeSpace{}
	for hole := range holes(blocks, capacity.Base, capacity.Base+capacity.BytesPerBank) {
		free.add(hole.Bytes)
	}
	return free
}
