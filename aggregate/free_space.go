package aggregate

import (
	"encoding/binary"
	"slices"

	"ttmem/tracer/event"
)

// freeSpaces are what is free on all chips, worked out at once: chips on which the same
// lies have the same.
type freeSpaces struct {
	// arenas are those of all processes on each chip, and key tells these apart.
	arenas map[int][]*arena
	key    map[int]string
	// known are what was worked out.
	known map[sameSpace]*FreeSpace
}

// sameSpace is what has the same free space: a region of chips with the same arenas.
type sameSpace struct {
	arenas   string
	region   event.Region
	capacity event.Capacity
}

func (s *State) freeSpaces() *freeSpaces {
	f := &freeSpaces{make(map[int][]*arena), make(map[int]string), make(map[sameSpace]*FreeSpace)}
	n := uint32(0)
	for _, p := range s.byPID() {
		p.lay()
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

// of is what is free of a region of a chip; nil where it is not known where the region
// lies in its banks.
func (f *freeSpaces) of(device int, region event.Region, capacity event.Capacity) *FreeSpace {
	if capacity.Base == 0 || capacity.BytesPerBank == 0 {
		return nil
	}
	same := sameSpace{f.key[device], region, capacity}
	if f.known[same] != nil {
		return f.known[same]
	}
	var all []block
	for _, a := range f.arenas[device] {
		if blocks := a.laid[region].now(); len(all) == 0 {
			all = blocks
		} else {
			all = with(slices.Clip(all), blocks) // elsewhere: these are an arena's
		}
	}
	f.known[same] = freeOf(all, capacity)
	return f.known[same]
}

// laidBlocks are the buffers of one region in one arena, in order. To put a million
// in order takes 0.2 s, in which a tracer would wait. It is done when somebody asks for the
// first time; from then on what comes and goes is noted, and put in its place when somebody
// asks again.
type laidBlocks struct {
	blocks []block
	// come and gone are what has changed since.
	come, gone []block
	// asked is true where somebody has asked since the notes were full, and begun while
	// the blocks are being collected.
	asked, begun bool
}

// keptChanges is how much is noted at least; of many blocks it is a quarter of them, so
// that to put one in its place always costs the same.
const keptChanges = 4096

// noted are the blocks of a region in the arena, of which a change is to be noted; nil where
// nobody asks for them. When the notes are full they are forgotten, unless somebody has
// asked since they were the last time.
func (a *arena) noted(region event.Region) *laidBlocks {
	l := a.laid[region]
	switch {
	case l == nil, len(l.come)+len(l.gone) < keptChanges+len(l.blocks)/4:
		return l
	case !l.asked:
		a.laid[region] = nil
		return nil
	}
	l.asked = false
	l.settle()
	return l
}

// lay notes that a buffer was allocated, and lift that it was freed.
func (b *buffer) lay() {
	if l := b.noted(b.region); l != nil {
		l.come = append(l.come, b.block())
	}
}

func (b *buffer) lift() {
	if l := b.noted(b.region); l != nil {
		l.gone = append(l.gone, b.block())
	}
}

func (b *buffer) block() block { return block{b.address, b.address + b.perBank} }

// lay puts in order what the process has, where nobody has asked for that before.
func (p *process) lay() {
	var begun []*laidBlocks
	for a := range p.arenas() {
		for region := range a.laid {
			if a.laid[region] == nil {
				a.laid[region] = &laidBlocks{begun: true}
				begun = append(begun, a.laid[region])
			}
		}
	}
	if len(begun) == 0 {
		return
	}
	for b := range p.buffers.all() {
		if l := b.laid[b.region]; l.begun {
			l.blocks = append(l.blocks, b.block())
		}
	}
	for _, l := range begun {
		l.begun = false
		sortBlocks(l.blocks)
	}
}

// now are the blocks as they are now, until something changes.
func (l *laidBlocks) now() []block {
	l.asked = true
	l.settle()
	return l.blocks
}

// settle puts in its place what has come and gone.
func (l *laidBlocks) settle() {
	if len(l.come) > 0 {
		sortBlocks(l.come)
		l.blocks = with(l.blocks, l.come)
	}
	if len(l.gone) > 0 {
		sortBlocks(l.gone)
		l.blocks = without(l.blocks, l.gone)
	}
	l.come, l.gone = l.come[:0], l.gone[:0]
}

// with adds blocks to others, in place; all are in order.
func with(blocks, come []block) []block {
	i, j := len(blocks)-1, len(come)-1
	blocks = append(blocks, come...)
	for to := len(blocks) - 1; j >= 0; to-- {
		if i >= 0 && compareBlocks(blocks[i], come[j]) > 0 {
			blocks[to] = blocks[i]
			i--
		} else {
			blocks[to] = come[j]
			j--
		}
	}
	return blocks
}

// without takes blocks off others, of which they are; all are in order.
func without(blocks, gone []block) []block {
	to := 0
	for i, b := range blocks {
		if len(gone) == 0 {
			to += copy(blocks[to:], blocks[i:])
			break
		}
		if b == gone[0] {
			gone = gone[1:]
			continue
		}
		blocks[to] = b
		to++
	}
	return blocks[:to]
}
