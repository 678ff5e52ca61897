package memory

import (
	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// An Amount counts buffers, circular buffers or programs' kernels, and their bytes.
type Amount struct{ Count, Bytes uint64 }

// Add adds b.
func (a *Amount) Add(b Amount) { a.Count += b.Count; a.Bytes += b.Bytes }

// Sub subtracts b.
func (a *Amount) Sub(b Amount) { a.Count -= b.Count; a.Bytes -= b.Bytes }

// A Buffer is a live buffer, or one that was live. It refers to what the State has, which never
// changes and must not be modified, so that views of a million buffers copy little.
type Buffer struct {
	*Site
	*Allocation
	// Allocator is the address of its allocator.
	Allocator uint64
	Owner
}

// An Allocation is what a buffer does not share with the others of its call site.
type Allocation struct {
	// BufferID is unique within the process. Object is the address of the library's Buffer.
	BufferID, Object uint64
	// Address is its address in each bank; 0 for a buffer on single cores whose addresses
	// differ or are not known.
	Address uint64
	// SizeBytes is its size on each chip.
	SizeBytes, PageSizeBytes uint64
	// BytesPerBank is its memory in each of Banks banks on each chip, or on each of its cores.
	BytesPerBank uint64
	// CoreSet is its cores, if it is on single ones that are known.
	CoreSet *cores.Set
	// SinceNs is when it was allocated, or discovered at a late attach.
	SinceNs uint64
	// TID and Comm are the allocating thread and its name.
	Comm string
	TID  int32
	// The allocator reserves BytesPerBank in all banks of the region; DataBanks of them have a part of
	// the buffer.
	Banks, DataBanks uint16
}

// AllocatedBytes returns the bytes that the allocator reserved on each chip.
func (a *Allocation) AllocatedBytes() uint64 { return a.BytesPerBank * uint64(a.Banks) }

// DataBytes returns those in the banks that have a part of the buffer.
func (a *Allocation) DataBytes() uint64 { return a.BytesPerBank * uint64(a.DataBanks) }

// End returns the address after its last byte.
func (a *Allocation) End() uint64 { return a.Address + a.BytesPerBank }

// Cores returns its cores; nil if they are not known, or if it is in all banks. They must not be modified.
func (a *Allocation) Cores() []event.CoreRange { return a.CoreSet.Ranges() }

// An Owner is the holder of a buffer. It is empty if owners were not searched, or if none was found.
type Owner struct {
	// Path leads to the buffer in the process: model.layers[0].wq. Tensor is the tensor there:
	// bf16[1,32,32,64] TILE.
	Path, Tensor string
}

// An EndedBuffer is a buffer that ended, without its page size and its address.
type EndedBuffer struct {
	Buffer
	EndNs uint64
	// LatestID is the latest buffer that its process had allocated when it ended.
	LatestID uint64
	// Unfreed is true if it ended with its device or process.
	Unfreed bool
}

// Scattered reports whether the buffer is on single cores, and its addresses there differ or are
// not known.
func (h *Buffer) Scattered() bool { return h.PerCore && h.Address == 0 }

// A Static is one circular buffer, dataflow buffer or scratchpad of a live program on one
// chip.
type Static struct {
	PID       int
	Device    int
	ProgramID uint64
	// Cores must not be modified.
	Cores []event.CoreRange
	// Address is its address in the L1 of each core.
	Address uint64
	// BytesPerCore is its size on each core.
	BytesPerCore uint64
	Kind         event.StaticKind
	// Global marks a circular buffer inside an L1 buffer, which counts its memory.
	Global bool
	// SinceNs is when it was allocated.
	SinceNs      uint64
	BeforeAttach bool
	// Stack is its call stack; nil if that is not known.
	Stack *event.Stack
}

// End returns the address after its last byte.
func (s *Static) End() uint64 { return s.Address + s.BytesPerCore }

// A Hole is a range of addresses that no buffer occupies.
type Hole struct {
	Address uint64 `json:"address"`
	Bytes   uint64 `json:"bytes"`
}

// FreeSpace is the free space in each bank of a region, in bytes: the sum of its holes and the
// largest of them.
type FreeSpace struct {
	FreeBytesPerBank        uint64 `json:"free_bytes_per_bank"`
	LargestFreeBytesPerBank uint64 `json:"largest_free_bytes_per_bank"`
}

// Add counts a hole.
func (f *FreeSpace) Add(h Hole) {
	f.FreeBytesPerBank += h.Bytes
	f.LargestFreeBytesPerBank = max(f.LargestFreeBytesPerBank, h.Bytes)
}

// A Space is the use of one region, address by address. All banks of a region are used
// alike, except by buffers on single cores: an allocator assigns the same addresses in each
// of them.
type Space struct {
	// Region is one that has banks, and Banks is their number.
	Region event.Region
	Banks  uint32
	// Start and End are the addresses that each bank has; both are 0 if they are not
	// known, or the addresses of a buffer.
	Start, End uint64
	// BytesPerBank is the memory of the buffers in each bank, or in the fullest one if some are
	// on single cores.
	BytesPerBank uint64
	// PerCore is how many buffers are on single cores.
	PerCore int
	// Blocks are the buffers in order of address. They overlap only if they are on single
	// cores, or if several allocators assign the same memory, as those of a mesh and its
	// submeshes do, or those of several processes.
	Blocks []Buffer
	// Holes are the addresses that no buffer occupies on any core, in order. There are none if
	// Start and End are not known.
	Holes []Hole
	// FreeSpace adds up the holes. With one allocator it equals what tt-metal's
	// GetMemoryView returns.
	FreeSpace
}

// Known reports whether the addresses of the region are known.
func (s *Space) Known() bool { return s.End > s.Start }
