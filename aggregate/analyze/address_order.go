package analyze

import (
	"cmp"
	"slices"
	"sort"

	"ttmem/aggregate"
)

// An addressOrder is buffers in order of address. They are in chunks, so that adding one
// moves few others.
type addressOrder struct{ chunks [][]aggregate.BufferRef }

// maxChunk is how many buffers a chunk has at most.
const maxChunk = 128

// find returns the position of the first buffer that does not start below the address.
func (o *addressOrder) find(address uint64) (chunk, at int) {
	chunk = sort.Search(len(o.chunks), func(i int) bool {
		c := o.chunks[i]
		return c[len(c)-1].Addresses().Start >= address
	})
	if chunk < len(o.chunks) {
		at, _ = slices.BinarySearchFunc(o.chunks[chunk], address, func(b aggregate.BufferRef, address uint64) int {
			return cmp.Compare(b.Addresses().Start, address)
		})
	}
	return chunk, at
}

func (o *addressOrder) add(b aggregate.BufferRef) {
	chunk, at := o.find(b.Addresses().Start)
	if chunk == len(o.chunks) {
		if chunk == 0 || len(o.chunks[chunk-1]) >= maxChunk {
			o.chunks = append(o.chunks, []aggregate.BufferRef{b})
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
func (o *addressOrder) remove(b aggregate.BufferRef) bool {
	start := b.Addresses().Start
	chunk, at := o.find(start)
	for ; chunk < len(o.chunks); chunk, at = chunk+1, 0 {
		for c := o.chunks[chunk]; at < len(c); at++ {
			if c[at].Addresses().Start != start {
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

// overlapping returns a buffer with addresses from start up to but not including end. It
// looks at the neighbours of start only: among buffers that overlap each other it may miss
// one.
func (o *addressOrder) overlapping(start, end uint64) aggregate.BufferRef {
	chunk, at := o.find(start)
	if chunk < len(o.chunks) {
		if b := o.chunks[chunk][at]; b.Addresses().Start < end {
			return b
		}
	}
	if at > 0 {
		at--
	} else if chunk > 0 {
		chunk--
		at = len(o.chunks[chunk]) - 1
	} else {
		return aggregate.BufferRef{}
	}
	if b := o.chunks[chunk][at]; b.Addresses().End > start {
		return b
	}
	return aggregate.BufferRef{}
}
