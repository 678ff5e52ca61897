package aggregate

import (
	"encoding/binary"
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/space"
	"ttmem/tracer/event"
)

// Space returns the use of a region of a chip by all processes; nil for an unknown chip
// and for a region without banks. Its cost is proportional to the number of live buffers.
func (s *State) Space(device int, region event.Region) *memory.Space {
	c := s.chips[device]
	if c == nil || int(region) >= event.BankedRegions {
		return nil
	}
	var buffers []memory.Buffer
	for _, p := range s.byPID() {
		buffers = append(buffers, p.list(func(b *buffer) bool {
			return b.region == region && slices.Contains(b.set.ids, device)
		})...)
	}
	return space.Of(region, c.capacities[region], buffers)
}

// AllocatorSpace returns the use of a region by one allocator, which is what the library
// itself reports; nil for an allocator that is not open.
func (s *State) AllocatorSpace(pid int, allocator uint64, region event.Region) *memory.Space {
	p := s.known(pid)
	if p == nil || p.allocators[allocator] == nil || int(region) >= event.BankedRegions {
		return nil
	}
	buffers := p.list(func(b *buffer) bool { return b.region == region && b.allocator == allocator })
	return space.Of(region, p.allocators[allocator].capacities[region], buffers)
}

// freeSpaces computes what is free on all chips. Chips with the same arenas have the
// same buffers, so that a mesh costs as much as one chip.
type freeSpaces struct {
	// arenas are those of all processes by chip, and key identifies them.
	arenas map[int][]*arena
	key    map[int]string
	known  map[freeSpaceKey]*addresses.FreeSpace
}

// A freeSpaceKey identifies regions with the same free space.
type freeSpaceKey struct {
	arenas   string
	region   event.Region
	capacity event.Capacity
}

func (s *State) freeSpaces() *freeSpaces {
	f := &freeSpaces{make(map[int][]*arena), make(map[int]string), make(map[freeSpaceKey]*addresses.FreeSpace)}
	n := uint32(0)
	for _, p := range s.byPID() {
		p.orderBlocks()
		for a := range p.arenas() {
			n++
			for _, c := range a.set.chips {
				id := c.chip.id
				f.arenas[id] = append(f.arenas[id], a)
				f.key[id] = string(binary.LittleEndian.AppendUint32([]byte(f.key[id]), n))
			}
		}
	}
	return f
}

// of returns what is free of a region of a chip, in all of its banks; nil if the region's
// addresses are not known, or those of a buffer.
func (f *freeSpaces) of(device int, region event.Region, capacity event.Capacity) *addresses.FreeSpace {
	if capacity.Base == 0 || capacity.BytesPerBank == 0 {
		return nil
	}
	if region == event.L1 && slices.ContainsFunc(f.arenas[device], func(a *arena) bool { return a.scattered > 0 }) {
		return nil
	}
	key := freeSpaceKey{f.key[device], region, capacity}
	if f.known[key] == nil {
		var all []addresses.Block
		for _, a := range f.arenas[device] {
			if blocks := a.blocks[region].Blocks(); len(all) == 0 {
				all = blocks
			} else {
				all = addresses.Merge(all, blocks)
			}
		}
		free := addresses.Free(all, capacity.Base, capacity.Base+capacity.BytesPerBank)
		f.known[key] = &free
	}
	return f.known[key]
}

// orderBlocks orders the addresses of the process's buffers, unless they are in order.
// Ordering a million takes 0.2 s. The first reader of free space pays for it; from then on
// changes are collected.
func (p *process) orderBlocks() {
	missing := make(map[*arena]*[event.BankedRegions][]addresses.Block)
	for a := range p.arenas() {
		for _, list := range a.blocks {
			if list == nil {
				missing[a] = new([event.BankedRegions][]addresses.Block)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	for b := range p.buffers.All() {
		if b.blocks[b.region] == nil {
			blocks := &missing[b.arena][b.region]
			*blocks = append(*blocks, b.block())
		}
	}
	for a, regions := range missing {
		for region, blocks := range regions {
			if a.blocks[region] == nil {
				a.blocks[region] = addresses.NewList(blocks)
			}
		}
	}
}

func (b *buffer) block() addresses.Block {
	return addresses.Block{Start: b.address, End: b.address + b.perBank}
}

// blocksToChange returns the ordered blocks of the buffer's arena and region; nil if there
// are none, or if they changed often and were not read.
func (b *buffer) blocksToChange() *addresses.List {
	list := b.blocks[b.region]
	if list != nil && !list.Trim() {
		list, b.blocks[b.region] = nil, nil
	}
	return list
}

func (b *buffer) insertBlock() {
	if list := b.blocksToChange(); list != nil {
		list.Add(b.block())
	}
}

func (b *buffer) removeBlock() {
	if list := b.blocksToChange(); list != nil {
		list.Remove(b.block())
	}
}
