package memory

import "ttmem/tracer/event"

// AfterFree are runs of programs by one line that have the address of a buffer that was freed before, and at which nothing
// was allocated since: an allocation may get the memory at any time.
type AfterFree struct {
	// TimeNs is when the first of them began, Address that of the first buffer.
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	Address uint64 `json:"address"`
	Devices []int  `json:"devices"`
	Region  string `json:"region" schema:"region"`
	PID     int    `json:"pid" user:"user"`
	UID     int    `json:"uid"`
	Count   uint64 `json:"count"`
	// Stack is that of the runs, AllocatedBy and FreedBy those of the buffer.
	Stack       *event.Stack `json:"stack,omitempty"`
	AllocatedBy *event.Stack `json:"allocated_by,omitempty"`
	FreedBy     *event.Stack `json:"freed_by,omitempty"`
	Sharer      int          `json:"-"` // to whom it counts where users have shares
}

// SameLines reports whether two are of the same lines.
func (a *AfterFree) SameLines(b *AfterFree) bool {
	return a.PID == b.PID && a.Region == b.Region && StackID(a.Stack) == StackID(b.Stack) && StackID(a.FreedBy) == StackID(b.FreedBy)
}
