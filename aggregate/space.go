package aggregate

import (
	"slices"

	"ttmem/aggregate/internal/space"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Space returns the use of a region of a chip by all processes; nil for an unknown chip
// and for a region without banks. Its cost is proportional to the number of live buffers.
func (s *State) Space(device int, region event.Region) *memory.Space {
	c := s.chips[device]
	if c == nil || int(region) >= event.BankedRegions {
		return nil
	}
	buffers := s.list(func(b *buffer) bool { return b.Region == region && slices.Contains(b.set.ids, device) })
	return space.Of(region, c.capacities[region], buffers)
}

// AllocatorSpace returns the use of a region by one allocator, which is what the library
// itself reports; nil for an allocator that is not open.
func (s *State) AllocatorSpace(pid int, allocator uint64, region event.Region) *memory.Space {
	p := s.known(pid)
	if p == nil || p.allocators[allocator] == nil || int(region) >= event.BankedRegions {
		return nil
	}
	buffers := p.list(func(b *buffer) bool { return b.Region == region && b.allocator == allocator })
	return space.Of(region, p.allocators[allocator].capacities[region], buffers)
}

// freeSpaces returns the free space in each bank of each region of each chip; nil if the
// addresses of the region or of a buffer in it are not known.
func (s *State) freeSpaces() map[int]*[event.BankedRegions]*memory.FreeSpace {
	arenas := make(map[int][]*arena) // by chip
	for _, p := range s.byPID() {
		p.orderBlocks()
		for a := range p.arenas() {
			for _, c := range a.set.chips {
				arenas[c.chip.id] = append(arenas[c.chip.id], a)
			}
		}
	}
	all := make(map[int]*[event.BankedRegions]*memory.FreeSpace)
	var last *chip
	for _, c := range s.byID() {
		// Chips with the same arenas have the same buffers, so that a mesh costs as much as
		// one chip.
		if last != nil && slices.Equal(arenas[c.id], arenas[last.id]) && c.capacities == last.capacities {
			all[c.id] = all[last.id]
			continue
		}
		all[c.id], last = new([event.BankedRegions]*memory.FreeSpace), c
		for region, capacity := range c.capacities {
			all[c.id][region] = freeSpace(arenas[c.id], event.Region(region), capacity)
		}
	}
	return all
}

func freeSpace(arenas []*arena, region event.Region, capacity event.Capacity) *memory.FreeSpace {
	if capacity.Base == 0 || capacity.BytesPerBank == 0 {
		return nil
	}
	var all []space.Block
	for _, a := range arenas {
		if region == event.L1 && a.scattered > 0 {
			return nil
		}
		if blocks := a.blocks[region].Blocks(); len(all) == 0 {
			all = blocks
		} else {
			all = space.Merge(all, blocks)
		}
	}
	free := space.Free(all, capacity.Base, capacity.Base+capacity.BytesPerBank)
	return &free
}

// orderBlocks orders the addresses of the process's buffers, unless they are in order.
// Ordering a million takes 0.3 s. The first reader of free space pays for it; from then on
// changes are collected.
func (p *process) orderBlocks() {
	missing := make(map[*space.List]bool)
	for a := range p.arenas() {
		for region := range a.blocks {
			if a.blocks[region] == nil {
				a.blocks[region] = space.NewList(nil)
				missing[a.blocks[region]] = true
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	for b := range p.buffers.Sorted() { // later ones often have higher addresses
		if list := b.blocks[b.Region]; missing[list] {
			list.Add(b.block())
		}
	}
}

func (b *buffer) block() space.Block { return space.Block{Start: b.Address, End: b.End()} }
