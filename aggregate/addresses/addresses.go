// Package addresses orders the addresses that buffers occupy in a bank, and finds what is
// free between them.
package addresses

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// A Block is the addresses of a buffer, from Start up to but not including End.
type Block struct{ Start, End uint64 }

// A Hole is addresses that no buffer occupies.
type Hole struct {
	Address uint64 `json:"address"`
	Bytes   uint64 `json:"bytes"`
}

// FreeSpace is what is free in each bank of a region, in bytes: the sum of its holes and
// the largest of them.
type FreeSpace struct {
	FreeBytesPerBank        uint64 `json:"free_bytes_per_bank"`
	LargestFreeBytesPerBank uint64 `json:"largest_free_bytes_per_bank"`
}

// Add counts a hole.
func (f *FreeSpace) Add(h Hole) {
	f.FreeBytesPerBank += h.Bytes
	f.LargestFreeBytesPerBank = max(f.LargestFreeBytesPerBank, h.Bytes)
}

// Free returns what is free between two addresses. The blocks must be in order.
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

// sortBlocks sorts blocks by address. Users wait while a million of them are sorted, so it
// is a radix sort: the addresses of one region differ in few bits, of which each pass takes
// 11.
func sortBlocks(blocks []Block) {
	const digits = 11
	if len(blocks) < 1<<digits {
		slices.SortFunc(blocks, compare)
		return
	}
	var differ uint64
	for _, b := range blocks {
		differ |= b.Start ^ blocks[0].Start
	}
	from, to := blocks, make([]Block, len(blocks))
	for shift := bits.TrailingZeros64(differ); differ>>shift != 0; shift += digits {
		var next [1 << digits]int
		digit := func(b Block) int { return int(b.Start >> shift & (1<<digits - 1)) }
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
	copy(blocks, from) // no effect if they are the same slice
	// Sort by End within each Start. Few blocks share a Start.
	for i := 0; i < len(blocks); {
		j := i + 1
		for j < len(blocks) && blocks[j].Start == blocks[i].Start {
			j++
		}
		slices.SortFunc(blocks[i:j], compare)
		i = j
	}
}
