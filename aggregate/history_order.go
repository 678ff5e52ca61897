package aggregate

import (
	"slices"
	"sort"
)

// inAddressOrder are buffers in the order of their addresses, in chunks, so that one
// more moves few others.
type inAddressOrder struct{ chunks [][]*buffer }

// maxChunk is how many buffers a chunk has at most.
const maxChunk = 128

// find is where the first buffer is whose address is not below.
func (o *inAddressOrder) find(address uint64) (chunk, at int) {
	chunk = sort.Search(len(o.chunks), func(i int) bool {
		c := o.chunks[i]
		return c[len(c)-1].address >= address
	})
	if chunk < len(o.chunks) {
		c := o.chunks[chunk]
		at = sort.Search(len(c), func(i int) bool { return c[i].address >= address })
	}
	return chunk, at
}

func (o *inAddressOrder) add(b *buffer) {
	chunk, at := o.find(b.address)
	if chunk == len(o.chunks) {
		if chunk == 0 || len(o.chunks[chunk-1]) >= maxChunk {
			o.chunks = append(o.chunks, []*buffer{b})
			return
		}
		chunk--
		at = len(o.chunks[chunk])
	}
	c := slices.Insert(o.chunks[chunk], at, b)
	if len(c) > maxChunk {
		half := len(c) / 2
		o.chunks = slices.Insert(o.chunks, chunk+1, slices.Clone(c[half:]))
		clear(c[half:])
		c = c[:half]
	}
	o.chunks[chunk] = c
}

// remove reports whether the buffer was there.
func (o *inAddressOrder) remove(b *buffer) bool {
	chunk, at := o.find(b.address)
	for ; chunk < len(o.chunks); chunk, at = chunk+1, 0 {
		for c := o.chunks[chunk]; at < len(c); at++ {
			if c[at].address != b.address {
				return false
			}
			if c[at] != b {
				continue
			}
			if o.chunks[chunk] = slices.Delete(c, at, at+1); len(c) == 1 {
				o.chunks = slices.Delete(o.chunks, chunk, chunk+1)
			}
			return true
		}
	}
	return false
}

// overlapping is a buffer that has addresses from start up to and without end; nil
// where there is none. Of buffers that overlap each other it may miss one: the nearest
// to start are looked at.
func (o *inAddressOrder) overlapping(start, end uint64) *buffer {
	chunk, at := o.find(start)
	if chunk < len(o.chunks) {
		if b := o.chunks[chunk][at]; b.address < end {
			return b
		}
	}
	if at > 0 {
		at--
	} else if chunk > 0 {
		chunk--
		at = len(o.chunks[chunk]) - 1
	} else {
		return nil
	}
	if b := o.chunks[chunk][at]; b.address+b.perBank > start {
		return b
	}
	return nil
}
