package heap

// This file bounds the bytes that are read from a process. A hostile process can prepare its
// memory so that a few objects lead to any number of others.

import (
	"errors"
	"fmt"
)

const (
	// readCost is added for each read, because a call takes as long as reading these bytes.
	readCost = 256
	// processBudget is the number of bytes that are read from a process for its devices and
	// sets, and bufferBudget the number for each pointer in a set. A Buffer takes 6 KB, and
	// sets that change are read several times.
	processBudget = 256 << 20
	bufferBudget  = 8 << 10
	// programBudget is how many bytes are read for a program. A large one takes 500 KB.
	programBudget = 4 << 20
	// maxBuffers bounds the live Buffers of a process, and the buckets and blocks in which
	// they are found.
	maxBuffers = 1 << 21
)

// errTooMuch means that a process's objects lead to more memory than real ones do.
var errTooMuch = fmt.Errorf("its objects lead to more memory than %d live buffers take", maxBuffers)

// budget is the memory of a process, with a limit on the bytes that are read.
type budget struct {
	memory
	left, reserve int // bytes
}

// budgetOf returns the memory of a process for its devices and buffers.
func budgetOf(m memory) *budget {
	return &budget{memory: m, left: processBudget, reserve: maxBuffers * bufferBudget}
}

func (b *budget) read(pieces []piece) error {
	for i := range pieces {
		b.left -= max(len(pieces[i].data), readCost)
	}
	if b.left < 0 {
		return errTooMuch
	}
	return b.memory.read(pieces)
}

// found raises the limit for n pointers in a set.
func (b *budget) found(n int) {
	more := min(n*bufferBudget, b.reserve)
	b.left, b.reserve = b.left+more, b.reserve-more
}

// isFinal reports whether an error ends the reading of a process.
func isFinal(err error) bool { return errors.Is(err, errGone) || errors.Is(err, errTooMuch) }
