package space

import (
	"cmp"
	"iter"

	"ttmem/aggregate/memory"
)

// A Block is the addresses of a buffer, from Start up to but not including End.
type Block struct{ Start, End uint64 }

// Free returns the free space between two addresses. The blocks must be in order.
func Free(blocks []Block, start, end uint64) memory.FreeSpace {
	var free memory.FreeSpace
	for hole := range Holes(blocks, start, end) {
		free.Add(hole)
	}
	return free
}

// Holes returns the holes between two addresses. The blocks must be in order; they may
// overlap.
func Holes(blocks []Block, start, end uint64) iter.Seq[memory.Hole] {
	return func(yield func(memory.Hole) bool) {
		for _, b := range blocks {
			if b.Start >= end {
				break
			}
			if b.Start > start && !yield(memory.Hole{Address: start, Bytes: b.Start - start}) {
				return
			}
			start = max(start, b.End)
		}
		if start < end {
			yield(memory.Hole{Address: start, Bytes: end - start})
		}
	}
}

func compare(a, b Block) int {
	if a.Start == b.Start {
		return cmp.Compare(a.End, b.End)
	}
	return cmp.Compare(a.Start, b.Start)
}
