package space

import (
	"slices"

	"ttmem/tracer/event"
)

// A List is blocks in order of address. Changes are collected and applied together when
// the blocks are read, because a change in the middle of a million blocks is expensive.
type List struct {
	blocks []Block
	// added and removed are the changes that are not applied yet.
	added, removed []Block
	// read is true if the blocks were read after Trim last applied the changes.
	read bool
}

// NewList returns a list of blocks, which may be in any order. It keeps and sorts the slice.
func NewList(blocks []Block) *List {
	slices.SortFunc(blocks, compare)
	return &List{blocks: blocks, read: true}
}

// Add adds a block.
func (l *List) Add(b Block) { l.added = append(l.added, b) }

// Remove removes a block that is in the list.
func (l *List) Remove(b Block) { l.removed = append(l.removed, b) }

// Blocks returns the blocks in order. They are valid until the next change, and must not
// be modified.
func (l *List) Blocks() []Block {
	l.read = true
	l.apply()
	return l.blocks
}

// minPending is the minimum number of changes to collect. A long list collects a quarter of its
// length, so that the cost of applying one change does not grow with it.
const minPending = 4096

// Trim bounds the collected changes; call it before Add and Remove. It returns false if there are
// many and the list was not read since it last applied changes: then it is not worth keeping.
func (l *List) Trim() bool {
	if len(l.added)+len(l.removed) < minPending+len(l.blocks)/4 {
		return true
	}
	if !l.read {
		return false
	}
	l.read = false
	l.apply()
	return true
}

func (l *List) apply() {
	if len(l.added) > 0 {
		slices.SortFunc(l.added, compare)
		if len(l.blocks) == 0 {
			l.blocks, l.added = l.added, nil
		} else {
			l.blocks = insert(l.blocks, l.added)
		}
	}
	if len(l.removed) > 0 {
		slices.SortFunc(l.removed, compare)
		l.blocks = remove(l.blocks, l.removed)
	}
	l.added, l.removed = l.added[:0], l.removed[:0]
}

// Lists are the blocks of one allocator's buffers, by region. A list is nil until somebody reads it.
type Lists [event.BankedRegions]*List

// Add adds the block of a buffer.
func (l *Lists) Add(region event.Region, b Block) { l.change(region, (*List).Add, b) }

// Remove removes the block of a buffer.
func (l *Lists) Remove(region event.Region, b Block) { l.change(region, (*List).Remove, b) }

// change changes a list. One that changed often and was not read is dropped.
func (l *Lists) change(region event.Region, change func(*List, Block), b Block) {
	switch list := &l[region]; {
	case *list == nil:
	case (*list).Trim():
		change(*list, b)
	default:
		*list = nil
	}
}

// Merge returns the blocks of both slices in order, and changes neither. Each must be in
// order.
func Merge(a, b []Block) []Block { return insert(slices.Clip(a), b) }

// insert adds blocks to others in place. Both must be in order.
func insert(blocks, added []Block) []Block {
	i, j := len(blocks)-1, len(added)-1
	blocks = append(blocks, added...)
	for to := len(blocks) - 1; j >= 0; to-- {
		if i >= 0 && compare(blocks[i], added[j]) > 0 {
			blocks[to] = blocks[i]
			i--
		} else {
			blocks[to] = added[j]
			j--
		}
	}
	return blocks
}

// remove removes blocks from others in place. Both must be in order, and others must contain all
// removed blocks.
func remove(blocks, removed []Block) []Block {
	to := 0
	for i, b := range blocks {
		if len(removed) == 0 {
			to += copy(blocks[to:], blocks[i:])
			break
		}
		if b == removed[0] {
			removed = removed[1:]
			continue
		}
		blocks[to] = b
		to++
	}
	return blocks[:to]
}
