package memory

import (
	"cmp"
	"ttmem/tracer/event"
)

// A Failure is an allocation, a limit of memory or an operation that failed with an exception of the
// library.
//
//schema:failed_allocation
type Failure struct {
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	PID     int    `json:"pid" user:"user"`
	TID     int    `json:"tid,omitempty"`
	Comm    string `json:"comm,omitempty"`
	Devices []int  `json:"devices"`
	Region  string `json:"region"`
	Reason  string `json:"reason,omitempty"`
	// SizeBytes is the requested size on each chip, and BytesPerBank the requested size in each
	// of Banks banks.
	SizeBytes    uint64 `json:"size_bytes,omitempty"`
	BytesPerBank uint64 `json:"bytes_per_bank,omitempty"`
	Banks        uint32 `json:"banks,omitempty"`
	ProgramID    uint64 `json:"program_id,omitempty"`
	// Message is the text of the exception.
	Message string `json:"message,omitempty"`
	// UID is the user of the process; 0 if that is not known.
	UID int `json:"uid"`
	// Sharer is to whom it counts where users have shares.
	Sharer int          `json:"-"`
	Stack  *event.Stack `json:"stack,omitempty"`
	// Freed are the latest frees of the process, the newest first, if the message says that something is
	// not allocated.
	Freed []Deallocation `json:"-"`
	// Evidence is the state of the banks; nil if that is not known. `ttmem oom` prints it.
	Evidence *Evidence `json:"-"`
	// Number is the event's number: see Point.
	Number uint64 `json:"-"`
}

// Origin returns to whom the process that failed counts, and the event's number.
func (f Failure) Origin() (sharer int, number uint64) { return cmp.Or(f.Sharer, f.UID), f.Number }

// ResolveStacks resolves the call stacks.
func (e *Evidence) ResolveStacks() {
	if e == nil {
		return
	}
	for _, list := range [][]Blame{e.Holders, e.Blockers} {
		for i := range list {
			list[i].Stack.Calls()
		}
	}
	for i := range e.Statics {
		e.Statics[i].Stack.Calls()
	}
}

// Evidence is the state of a region when an allocation failed. It has only the buffers of the
// process, because its allocator does not know those of others.
type Evidence struct {
	// Region is the region of the allocation; L1 if circular buffers overlapped a tensor.
	Region event.Region
	// Capacity is the capacity of the allocator; zero if it is not known.
	Capacity event.Capacity
	// FreeSpace is the free space; zero if the Capacity or its Base is not known.
	FreeSpace
	// AllocatedBytesPerBank is what the buffers of the allocator took of each bank.
	AllocatedBytesPerBank uint64
	// Said is true if these figures are those of the library's message. Counted are then those of
	// ttmem, if they are known and differ.
	Said    bool
	Counted *event.BankState
	// NeededPerBank is what another captured trace takes of each bank of a trace region that was too
	// small; 0: not known.
	NeededPerBank uint64
	// SubDevicesPerBank is what each bank of L1 lacks for the allocators of sub-devices.
	SubDevicesPerBank uint64
	// PerCore is true if some buffers were on single cores. FreeSpace is then the space that
	// was free on all cores, and the buffers to free are not known.
	PerCore bool
	// The Blockers are between From and To. For an allocation this is the place where the
	// fewest bytes have to be freed; for a clash it is the place of the program's circular
	// buffers. Both are 0 if freeing does not help, or if that is not known.
	From, To uint64
	// Live is the sum of the live buffers in the region, and Holders are the call stacks with
	// the most bytes, largest first.
	Live    Blame
	Holders []Blame
	// Blocking is the sum of the live buffers between From and To, and Blockers are their call
	// stacks: largest first or, for a clash, lowest address first, because that is where
	// buffers and programs overlap.
	Blocking Blame
	Blockers []Blame
	// Lowest is the address of the lowest buffer; 0 if there was none.
	Lowest uint64
	// Statics are the program's circular buffers that reach above Lowest, highest first.
	Statics []Static
}

// Known reports whether the state of the banks is known.
func (e *Evidence) Known() bool { return e.Said || e.Capacity.Base != 0 }

// A Blame is the sum of the buffers of one call stack, or of all.
type Blame struct {
	// BytesPerBank is the memory of the Count buffers in each bank, or in the fullest one if
	// some are on single cores. They are between Address and End.
	BytesPerBank, Count uint64
	Address, End        uint64
	// BeforeAttach marks buffers that were allocated before ttmem attached.
	BeforeAttach bool
	Stack        *event.Stack
}
