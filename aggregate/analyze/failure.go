package analyze

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Cause is why an allocation failed.
type Cause uint8

// The causes.
const (
	// Unexplained: the state of the banks is not known, or there was room.
	Unexplained Cause = iota
	// TooLarge: a bank is smaller than the allocation even when it is empty.
	TooLarge
	// TooLittle: less than the allocation was free in all.
	TooLittle
	// Fragmented: enough was free in all, but the largest hole was too small.
	Fragmented
	// Clash: the circular buffers of a program overlap a tensor.
	Clash
)

// CauseOf returns why an allocation failed.
func CauseOf(f *memory.Failure) Cause {
	e := f.Evidence
	switch {
	case f.Reason == event.ReasonStaticClash.String():
		return Clash
	case f.Reason != event.ReasonOutOfMemory.String() || e == nil || e.Capacity.Base == 0 || f.BytesPerBank == 0:
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
