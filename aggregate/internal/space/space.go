// Package space measures one region of memory: its use by buffers, the free space between them,
// and the buffers in the way of a failed allocation.
package space

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Of returns the space of a region with these buffers. It keeps and sorts the slice.
func Of(region event.Region, capacity event.Capacity, buffers []memory.Buffer) *memory.Space {
	slices.SortFunc(buffers, func(a, b memory.Buffer) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.PID, b.PID), cmp.Compare(a.SinceNs, b.SinceNs), cmp.Compare(a.BufferID, b.BufferID))
	})
	space := &memory.Space{Region: region, Banks: capacity.Banks, Blocks: buffers}
	blocks := make([]Block, len(buffers))
	var use perBank
	var end uint64 // of the buffers so far
	scattered := false
	for i := range buffers {
		b := &buffers[i]
		blocks[i] = block(b)
		use.add(b)
		if !b.PerCore && b.Address > 0 && end > b.Address { // another allocator assigned a part, too
			use.inAll -= min(blocks[i].End, end) - b.Address
		}
		if !b.PerCore {
			end = max(end, blocks[i].End)
		}
		if b.PerCore {
			space.PerCore++
			scattered = scattered || b.Scattered()
		}
	}
	space.BytesPerBank = use.bytes()
	if capacity.Base == 0 || scattered {
		return space
	}
	space.Start, space.End = capacity.Base, capacity.Base+capacity.BytesPerBank
	for hole := range Holes(blocks, space.Start, space.End) {
		space.Holes = append(space.Holes, hole)
		space.FreeSpace.Add(hole)
	}
	return space
}

func block(b *memory.Buffer) Block { return Block{Start: b.Address, End: b.End()} }

// perBank adds up the bytes of buffers on the fullest bank.
type perBank struct {
	inAll   uint64 // buffers in all banks
	perCore cores.Load
}

func (p *perBank) add(b *memory.Buffer) {
	if !b.PerCore {
		p.inAll += b.BytesPerBank
	} else if b.CoreSet != nil {
		p.perCore.Add(b.CoreSet, b.BytesPerBank)
	}
}

func (p *perBank) bytes() uint64 {
	_, most := p.perCore.Fullest()
	return p.inAll + most
}
