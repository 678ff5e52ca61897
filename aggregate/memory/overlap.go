package memory

import (
	"cmp"

	"ttmem/tracer/event"
)

// An Overlap is two buffers of different allocators that had addresses of a chip in common while
// both were live: a program that writes to one changes the other. There is one for each pair of call
// sites, with their first such buffers.
type Overlap struct {
	// TimeNs is when the later one was allocated.
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	Devices []int  `json:"devices"`
	Region  string `json:"region" schema:"region"`
	// Address is the first common address, and BytesPerBank the number of common bytes in each bank.
	Address      uint64        `json:"address"`
	BytesPerBank uint64        `json:"bytes_per_bank"`
	Earlier      OverlapBuffer `json:"earlier"`
	Later        OverlapBuffer `json:"later"`
	// Number is the event's number: see Point.
	Number uint64 `json:"-"`
}

// An OverlapBuffer is one of the two buffers. All but Hidden is left out for a buffer that the user may
// not see, or did not select.
type OverlapBuffer struct {
	Hidden       bool         `json:"other_process,omitempty"`
	PID          int          `json:"pid,omitempty" user:"user"`
	BufferID     uint64       `json:"buffer_id,omitempty"`
	Address      uint64       `json:"address,omitempty"`
	SizeBytes    uint64       `json:"size_bytes,omitempty"`
	BytesPerBank uint64       `json:"bytes_per_bank,omitempty"`
	BeforeAttach bool         `json:"before_attach,omitempty"`
	UID          int          `json:"uid,omitempty"`
	Sharer       int          `json:"-"` // to whom it counts where users have shares
	Stack        *event.Stack `json:"stack,omitempty"`
}

// Origin returns to whom the later buffer counts, and the event's number.
func (o Overlap) Origin() (sharer int, number uint64) {
	return cmp.Or(o.Later.Sharer, o.Later.UID), o.Number
}

// For returns the overlap as the selected processes and users may see it; false if it has none of
// their buffers.
func (o Overlap) For(selected func(pid, uid int) bool) (Overlap, bool) {
	seen := false
	for _, b := range []*OverlapBuffer{&o.Earlier, &o.Later} {
		if !b.Hidden && selected(b.PID, b.UID) {
			seen = true
		} else {
			*b = OverlapBuffer{Hidden: true}
		}
	}
	return o, seen
}

// ResolveStacks resolves the call stacks of a process.
func (o *Overlap) ResolveStacks(pid int) {
	for _, b := range []*OverlapBuffer{&o.Earlier, &o.Later} {
		if b.PID == pid {
			b.Stack.Calls()
		}
	}
}

// OverlapSites identify the two call sites of an overlap.
type OverlapSites struct {
	region         string
	earlier, later overlapSite
}

type overlapSite struct {
	pid          int
	beforeAttach bool
	stack        uint64
}

// Sites returns the two call sites.
func (o *Overlap) Sites() OverlapSites {
	return OverlapSites{o.Region, o.Earlier.site(), o.Later.site()}
}

func (b *OverlapBuffer) site() overlapSite {
	return overlapSite{b.PID, b.BeforeAttach, StackID(b.Stack)}
}
