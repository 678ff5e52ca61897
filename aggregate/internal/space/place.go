package space

import "cmp"

// An Owned block belongs to the buffer with this ID.
type Owned struct {
	Block
	ID uint64
}

// FindPlace returns the place between two addresses where the fewest bytes have to be freed for a
// block of this size; none if the block is empty or too large. The blocks must be in order of
// address.
//
// Of equal places it takes the one with the fewest buffers, and then the one with the newest,
// which have the largest IDs: the oldest buffers are the least likely to be freed. It tries only
// places that begin at the end of a buffer or at the start of the region: any other place can
// move down to one of these, and no more has to be freed.
func FindPlace(blocks []Owned, from, to, bytes uint64) (place Block) {
	if bytes == 0 || bytes > to-from {
		return Block{}
	}
	best, fewest, newest := ^uint64(0), 0, uint64(0)
	var taken, ids uint64 // bytes of blocks[first:last] and the sum of their ids
	last := 0
	try := func(start uint64, first int) bool {
		if start+bytes > to {
			return false
		}
		for ; last < len(blocks) && blocks[last].Start < start+bytes; last++ {
			taken, ids = taken+blocks[last].bytes(), ids+blocks[last].ID
		}
		count := last - min(first, last)
		if cmp.Or(cmp.Compare(taken, best), cmp.Compare(count, fewest), cmp.Compare(newest, ids)) < 0 {
			best, fewest, newest = taken, count, ids
			place = Block{start, start + bytes}
		}
		return true
	}
	if !try(from, 0) {
		return Block{}
	}
	for first, b := range blocks {
		if first >= last {
			last, taken, ids = first+1, b.bytes(), b.ID // it was beyond the previous place
		}
		taken, ids = taken-b.bytes(), ids-b.ID
		if !try(b.End, first+1) {
			break
		}
	}
	return place
}

func (b *Block) bytes() uint64 { return b.End - b.Start }
