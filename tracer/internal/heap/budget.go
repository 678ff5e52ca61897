package heap

// This file bounds the bytes that are read from a process. A hostile process can prepare its
// memory so that a few objects lead to any number of others.

import (
	"errors"
	"fmt"

	"ttmem/tracer/host"
)

const (
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

// budget is the memory of a process, with a limit that pointers in sets raise.
type budget struct {
	host.Bounded
	reserve int64 // bytes
}

// budgetOf returns the memory of a process for its devices and buffers.
func budgetOf(m host.Memory) *budget {
	return &budget{host.Bounded{Memory: m, Left: processBudget, Over: errTooMuch}, maxBuffers * bufferBudget}
}

// found raises the limit for n pointers in a set.
func (b *budget) found(n int) {
	more := min(int64(n)*bufferBudget, b.reserve)
	b.Left, b.reserve = b.Left+more, b.reserve-more
}

// isFinal reports whether an error ends the reading of a process.
func isFinal(err error) bool { return errors.Is(err, host.ErrGone) || errors.Is(err, errTooMuch) }
