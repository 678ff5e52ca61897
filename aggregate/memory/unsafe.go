package memory

import "ttmem/tracer/event"

// Unsafe are buffers of a call site that a captured trace may overwrite. The trace writes to the addresses
// that were free when it was captured. The allocator does not know that, and gave them to these buffers: they
// were allocated after the capture, and were live when the trace was replayed.
type Unsafe struct {
	// TimeNs is when the first of them was live at a replay, and TraceID the number of that trace.
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	TraceID uint64 `json:"trace_id"`
	Devices []int  `json:"devices"`
	Region  string `json:"region" schema:"region"`
	PID     int    `json:"pid" user:"user"`
	UID     int    `json:"uid"`
	Sharer  int    `json:"-"` // to whom it counts where users have shares
	// Count counts each buffer once, and Bytes on all its chips.
	Count uint64       `json:"count"`
	Bytes uint64       `json:"bytes"`
	Stack *event.Stack `json:"stack,omitempty"`
	// BufferID is the first of them, Owner who holds it, if that was searched, and Tensor the tensor there.
	BufferID uint64 `json:"buffer_id"`
	Owner    string `json:"owner,omitempty"`
	Tensor   string `json:"tensor,omitempty"`
}

// SameSite reports whether two are of one call site.
func (u *Unsafe) SameSite(v *Unsafe) bool {
	return u.PID == v.PID && u.Region == v.Region && StackID(u.Stack) == StackID(v.Stack)
}
