// Package addresses orders the addresses that buffers occupy in a bank, and finds the free
// space between them.
package addresses

import (
	"cmp"
	"iter"
)

// A Block is the addresses of a buffer, from Start up to but not including End.
type Block struct{ Start, End uint64 }

// A Hole is a range of addresses that no buffer occupies.
type Hole struct {
	Address uint64 `json:"address"`
	Bytes   uint64 `json:"bytes"`
}

// FreeSpace is the free space in each bank of a region, in bytes: the sum of its holes and the
// largest of them.
type FreeSpace struct {
	FreeBytesPerBank        uint64 `json:"free_bytes_per_bank"`
	LargestFreeBytesPerBank uint64 `json:"largest_free_bytes_per_bank"`
}

// Add counts a hole.
func (f *FreeSpace) Add(h Hole) {
	f.FreeBytesPerBank += h.Bytes
	f.LargestFreeBytesPerBank = max(f.LargestFreeBytesPerBank, h.Bytes)
}

// Free returns the free space between two addresses. The blocks must be in order.
func Free(blocks []Block, start, end uint64) FreeSpace {
	var free FreeSpace
	for hole := range Holes(blocks, start, end) {
		free.Add(hole)
	}
	return free
}

// Holes returns the holes between two addresses. The blocks must be in order; they may
// overlap.
func Holes(blocks []Block, start, end uint64) iter.Seq[Hole] {
	return func(yield func(Hole) bool) {
		for _, b := range blocks {
			if b.Start >= end {
				break
			}
			if b.Start > start && !yield(Hole{start, b.Start - start}) {
				return
			}
			start = max(start, b.End)
		}
		if start < end {
			yield(Hole{start, end - start})
		}
	}
}

func compare(a, b Block) int {
	if a.Start == b.Start {
		return cmp.Compare(a.End, b.End)
	}
	return cmp.Compare(a.Start, b.Start)
}
