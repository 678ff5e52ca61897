package memory

import "ttmem/tracer/event"

// A Deallocation is a buffer that the program freed.
type Deallocation struct {
	TimeNs, BufferID, Address uint64
	Region                    event.Region
	Devices                   []int
	// AllocatedBy may be nil, if it is not known.
	AllocatedBy, FreedBy *event.Stack
}
