package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A Cause is why an allocation failed.
type Cause uint8

// The causes.
const (
	// Unexplained: the state of the banks is not known, or there was room.
	Unexplained Cause = iota
	// TooLarge: the allocation does not fit in an empty bank.
	TooLarge
	// TooLittle: the sum of the free space was too small.
	TooLittle
	// Fragmented: the sum of the free space was enough, but the largest hole was too small.
	Fragmented
	// Clash: the circular buffers of a program overlap a tensor.
	Clash
	// StaticTooLarge: the circular buffers of a program are larger than L1.
	StaticTooLarge
	// TraceTooSmall: the trace region has no room for another captured trace.
	TraceTooSmall
	// KernelConfigTooSmall: the part of L1 for kernels and their arguments is too small for a program.
	KernelConfigTooSmall
	// Refused: the operation checked how much L1 it needs.
	Refused
)

// causes are those that the reason of a failure says.
var causes = map[string]Cause{
	event.ReasonStaticClash.String(): Clash, event.ReasonStaticTooLarge.String(): StaticTooLarge,
	event.ReasonTraceTooSmall.String(): TraceTooSmall, event.ReasonKernelConfigTooSmall.String(): KernelConfigTooSmall,
	event.ReasonRefused.String(): Refused,
}

// CauseOf returns why an allocation failed.
func CauseOf(f *memory.Failure) Cause {
	e := f.Evidence
	if c, ok := causes[f.Reason]; ok {
		return c
	}
	switch {
	case f.Reason != event.ReasonOutOfMemory.String() || e == nil || !e.Known() || f.BytesPerBank == 0:
		return Unexplained
	case f.BytesPerBank > e.Capacity.BytesPerBank:
		return TooLarge
	case f.BytesPerBank > e.FreeBytesPerBank:
		return TooLittle
	case f.BytesPerBank > e.LargestFreeBytesPerBank:
		return Fragmented
	}
	return Unexplained
}

// FreedBy returns what may have freed the tensor that a failed operation used: the calls that
// deallocated tensors before, the newest first. The message of the library does not say which tensor it
// was. The end of a tensor cannot be it, because nothing can use the tensor afterwards.
func FreedBy(f *memory.Failure) []memory.Deallocation {
	return slices.DeleteFunc(slices.Clone(f.Freed), func(d memory.Deallocation) bool { return !name.Deallocates(d.FreedBy.Frames()) })
}
