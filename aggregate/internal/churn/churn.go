// Package churn counts temporary allocations: buffers that the program freed before their call site had
// allocated two more, such as the result of an operation that the next round of a loop replaces.
package churn

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// A Site counts the temporary allocations of a call site, on each of its chips.
type Site struct {
	// last and before are the IDs of its two latest buffers. IDs go up with time.
	last, before uint64
	memory.Amount
}

// Alloc takes the allocation of a buffer.
func (s *Site) Alloc(id uint64) { s.last, s.before = id, s.last }

// Free takes a buffer that the program frees.
func (s *Site) Free(id, bytes uint64) {
	if id >= s.before {
		s.Add(memory.Amount{Count: 1, Bytes: bytes})
	}
}

// Code writes or reads the counts.
func (s *Site) Code(c *codec.Codec) {
	c.Uints(&s.last, &s.before)
	c.Value(&s.Amount)
}
