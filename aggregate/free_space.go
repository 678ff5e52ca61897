package aggregate

import (
	"encoding/binary"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// freeSpaces computes what is free on all chips. Chips that are in the same device sets
// have the same buffers, so that a mesh costs as much as one chip.
type freeSpaces struct {
	// sets are the device sets of all processes by chip, and key identifies them.
	sets  map[int][]*deviceSet
	key   map[int]string
	known map[freeSpaceKey]*addresses.FreeSpace
}

// A freeSpaceKey identifies regions with the same free space.
type freeSpaceKey struct {
	sets     string
	region   event.Region
	capacity event.Capacity
}

func (s *State) freeSpaces() *freeSpaces {
	f := &freeSpaces{make(map[int][]*deviceSet), make(map[int]string), make(map[freeSpaceKey]*addresses.FreeSpace)}
	n := uint32(0)
	for _, p := range s.byPID() {
		p.orderBlocks()
		for _, set := range p.sets {
			n++
			for _, c := range set.chips {
				id := c.chip.id
				f.sets[id] = append(f.sets[id], set)
				f.key[id] = string(binary.LittleEndian.AppendUint32([]byte(f.key[id]), n))
			}
		}
	}
	return f
}

// of returns what is free of a region of a chip; nil if the region's addresses are not
// known.
func (f *freeSpaces) of(device int, region event.Region, capacity event.Capacity) *addresses.FreeSpace {
	if capacity.Base == 0 || capacity.BytesPerBank == 0 {
		return nil
	}
	key := freeSpaceKey{f.key[device], region, capacity}
	if f.known[key] == nil {
		var all []addresses.Block
		for _, set := range f.sets[device] {
			if blocks := set.blocks[region].Blocks(); len(all) == 0 {
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
	missing := make(map[*deviceSet]*[event.BankedRegions][]addresses.Block)
	for _, set := range p.sets {
		for _, list := range set.blocks {
			if list == nil {
				missing[set] = new([event.BankedRegions][]addresses.Block)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	for b := range p.buffers.all() {
		if b.set.blocks[b.region] == nil {
			blocks := &missing[b.set][b.region]
			*blocks = append(*blocks, b.block())
		}
	}
	for set, regions := range missing {
		for region, blocks := range regions {
			if set.blocks[region] == nil {
				set.blocks[region] = addresses.NewList(blocks)
			}
		}
	}
}

func (b *buffer) block() addresses.Block {
	return addresses.Block{Start: b.address, End: b.address + b.perBank}
}

// blocksToChange returns the ordered blocks of the buffer's set and region; nil if there
// are none, or if they changed often and were not read.
func (b *buffer) blocksToChange() *addresses.List {
	list := b.set.blocks[b.region]
	if list != nil && !list.Trim() {
		list, b.set.blocks[b.region] = nil, nil
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
