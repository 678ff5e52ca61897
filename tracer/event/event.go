// Package event is the vocabulary of ttmem: the events in the memory of a
// Tenstorrent device. It has plain types and no I/O. Events come from the
// tracer or from a file, and package aggregate applies them to a State.
package event

import (
	"cmp"
	"math"
)

// Kind says what happened.
type Kind uint8

// The kinds of events.
const (
	// Alloc is the allocation of a buffer.
	Alloc Kind = iota + 1
	// Free is the end of a buffer, for Event.Reason.
	Free
	// AllocFailed is an allocation, or a limit of memory, that failed with an exception of the
	// library.
	AllocFailed
	// CBAlloc is the allocation of a circular buffer, dataflow buffer or
	// scratchpad of a program.
	CBAlloc
	// CBFree is the end of all circular and dataflow buffers of one program on
	// Event.Devices (on every device, where none are given).
	CBFree
	// KernelLoad is the loading of a program's kernels for a device. It has
	// the bytes of their binaries in DRAM and of their text in L1.
	KernelLoad
	// KernelUnload is the end of a program's kernels.
	KernelUnload
	// DeviceOpen is the first event of a device (a chip or a mesh) and its
	// allocator. Event.Capacities has its regions. Another one follows when these change, with the
	// Cause: a sub-device manager takes a part of L1, or gives it back.
	DeviceOpen
	// DeviceClose is the end of an allocator and all its buffers. It implies
	// their Free events, with ReasonDeviceClose: see aggregate.State.Implied.
	DeviceClose
	// ProcessStart is the beginning of tracing a process.
	ProcessStart
	// ProcessExit is the end of a process, with ExitStatus if that is known. It
	// implies the Free events of its live buffers, with ReasonProcessExit.
	ProcessExit
	// Lost says that Event.Count events were lost because of Event.Cause.
	Lost
	// Mark is a moment with a name, which is Cause. UID is the user who set it,
	// and PID the process whose call it marks, if it marks a call.
	Mark
	// Reread says that, after a loss, the live buffers of a process were read from its memory
	// again, and that its figures are right from then on. Earlier events with Event.Reread are
	// the corrections.
	Reread
	// ProgramRun is the enqueueing of a program on Event.Devices. The program was compiled for
	// this run or comes from the program cache. The run allocates nothing: the program's CBAlloc
	// events came earlier, or follow if it is compiled now.
	ProgramRun
	// Owner says who holds the live buffer Event.BufferID: Event.Cause is the path that leads to it
	// in the process, such as model.layers[0].wq, and Event.Message the tensor: its type, shape and
	// layout; or the type of another object, such as global_semaphore. It was found by reading the process's memory. Without a Cause, nobody holds the buffer
	// any more. With NoBuffer it is the end of a search of the process, and Event.Message says why not all
	// owners were found; "" if the search was complete.
	Owner
	// OperationFailed is an operation that ended with another exception of the library, which is not
	// about memory: Event.Message.
	OperationFailed
	// TraceBegin is the beginning of the capture of a trace on Event.Devices. The programs that are
	// enqueued from then on are recorded on the device, until its TraceEnd. ProgramID is the
	// trace's number, for all four kinds.
	TraceBegin
	// TraceEnd is the end of the capture. The trace takes its memory in region Trace after it.
	TraceEnd
	// TraceReplay runs all programs of a captured trace again. No ProgramRun says so.
	TraceReplay
	// TraceRelease is the end of a captured trace.
	TraceRelease
	// HostMemory is a sample of a process's memory on the host: SizeBytes is resident now, and
	// BytesPerBank was resident at most since its program began.
	HostMemory
	// BufferWrite is the writing of a live buffer by the host, and BufferRead its reading: a transfer of a tensor to
	// or from the device.
	BufferWrite
	BufferRead
	// Checkpoint is the whole state at that time, in Event.State. A stream that begins in the
	// middle starts with one.
	Checkpoint
)

var kindNames = [...]string{
	Alloc: "alloc", Free: "free", AllocFailed: "alloc_failed",
	CBAlloc: "cb_alloc", CBFree: "cb_free",
	KernelLoad: "kernel_load", KernelUnload: "kernel_unload",
	DeviceOpen: "device_open", DeviceClose: "device_close",
	ProcessStart: "process_start", ProcessExit: "process_exit",
	Lost: "lost", Mark: "mark", Reread: "reread", ProgramRun: "program_run", Owner: "owner", OperationFailed: "operation_failed",
	TraceBegin: "trace_begin", TraceEnd: "trace_end", TraceReplay: "trace_replay", TraceRelease: "trace_release",
	HostMemory: "host_memory", BufferWrite: "buffer_write", BufferRead: "buffer_read", Checkpoint: "checkpoint",
}

// String is the name of the kind in the JSON record.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

// The Causes of an Owner that are no path in Python: the programs of the program cache, with the
// binaries of their kernels apart, and captured traces.
const (
	OwnerProgramCache = "program cache"
	OwnerBinaries     = "program cache (kernel binaries)"
	OwnerTraces       = "trace region"
)

// NoBuffer is no buffer's Event.BufferID.
const NoBuffer = math.MaxUint64

// Region is a kind of device memory.
type Region uint8

// The regions, with tt-metal's BufferType first.
const (
	DRAM Region = iota
	L1
	SystemMemory
	L1Small
	Trace
	// CB is the part of each core's L1 where the static circular and dataflow
	// buffers of programs lie.
	CB
	// Kernel is the binaries of kernels: in DRAM, and their text in the kernel
	// config ring of L1.
	Kernel
	// NumRegions is the number of regions.
	NumRegions
)

var regionNames = [...]string{
	DRAM: "DRAM", L1: "L1", SystemMemory: "SYSTEM_MEMORY", L1Small: "L1_SMALL",
	Trace: "TRACE", CB: "CB", Kernel: "KERNEL",
}

// String is the name of the region in the JSON record.
func (r Region) String() string { return name(regionNames[:], int(r)) }

// BankedRegions is the number of regions that are divided into banks by an
// allocator: DRAM, L1, SystemMemory, L1Small and Trace, in this order.
const BankedRegions = int(CB)

// Layout is tt-metal's TensorMemoryLayout: how the pages of a buffer are
// spread over the banks.
type Layout uint8

// The layouts.
const (
	Interleaved   Layout = 0
	HeightSharded Layout = 2
	WidthSharded  Layout = 3
	BlockSharded  Layout = 4
	NDSharded     Layout = 5
)

var layoutNames = [...]string{
	Interleaved: "interleaved", 1: "single_bank", HeightSharded: "height_sharded",
	WidthSharded: "width_sharded", BlockSharded: "block_sharded",
	NDSharded: "nd_sharded",
}

// String is the name of the layout in the JSON record.
func (l Layout) String() string { return name(layoutNames[:], int(l)) }

// Sharded reports whether a buffer of this layout has a shard per core in
// place of pages on all banks.
func (l Layout) Sharded() bool { return l >= HeightSharded }

// StaticKind says what kind of static L1 allocation a CBAlloc is.
type StaticKind uint8

// The kinds of static allocations.
const (
	NotStatic StaticKind = iota
	CircularBuffer
	DataflowBuffer
	Scratchpad
)

var staticNames = [...]string{
	CircularBuffer: "circular_buffer", DataflowBuffer: "dataflow_buffer",
	Scratchpad: "scratchpad",
}

// String is the name of the kind in the JSON record.
func (s StaticKind) String() string { return name(staticNames[:], int(s)) }

// FreedAs returns the kind of the CBFree that ends the allocation: scratchpads are freed with the
// dataflow buffers.
func (s StaticKind) FreedAs() StaticKind {
	if s == Scratchpad {
		return DataflowBuffer
	}
	return s
}

// KernelKind says what the kernels of a KernelLoad are for.
type KernelKind uint8

// The kinds of kernels. Those of the runtime, all but the first, run on cores of their own and
// have no binaries in DRAM.
const (
	// WorkerKernels are those of an operation.
	WorkerKernels KernelKind = iota
	// QueueKernels are those of a command queue.
	QueueKernels
	// FabricKernels are the routers between chips.
	FabricKernels
	// RuntimeKernels are of a command queue or of the fabric: it is not known which.
	RuntimeKernels
	// NumKernelKinds is the number of kinds.
	NumKernelKinds
)

var kernelNames = [...]string{
	QueueKernels: "command_queue", FabricKernels: "fabric", RuntimeKernels: "command_queue_or_fabric",
}

// String is the name of the kind in the JSON record, which has none for workers.
func (k KernelKind) String() string { return name(kernelNames[:], int(k)) }

// Reason says why something ended or failed.
type Reason uint8

// The reasons.
const (
	NoReason Reason = iota
	// ReasonExplicit is a Free by deallocate_impl.
	ReasonExplicit
	// ReasonDeviceClose is a Free because the device was closed.
	ReasonDeviceClose
	// ReasonProcessExit is a Free because the process is gone.
	ReasonProcessExit
	// ReasonOutOfMemory is an AllocFailed for which no bank had room.
	ReasonOutOfMemory
	// ReasonStaticClash is an AllocFailed of region CB: the static region of a
	// program would have grown into an L1 buffer.
	ReasonStaticClash
	// ReasonStaticTooLarge is an AllocFailed of region CB: the static region of a program is larger
	// than L1, whatever else is there.
	ReasonStaticTooLarge
	// ReasonTraceTooSmall is an AllocFailed of region Trace: the trace region has no room for another
	// captured trace.
	ReasonTraceTooSmall
	// ReasonKernelConfigTooSmall is an AllocFailed of region Kernel: a program's kernels and their
	// arguments are larger than the part of L1 for them.
	ReasonKernelConfigTooSmall
	// ReasonRefused is an AllocFailed of region L1: an operation computed that it needs more L1 than
	// there is, and did not begin. So does open_device.
	ReasonRefused
	// ReasonOther is an OperationFailed.
	ReasonOther
)

var reasonNames = [...]string{
	ReasonExplicit: "explicit", ReasonDeviceClose: "device_close",
	ReasonProcessExit: "process_exit", ReasonOutOfMemory: "out_of_memory",
	ReasonStaticClash: "static_clash", ReasonStaticTooLarge: "static_too_large",
	ReasonTraceTooSmall: "trace_region_too_small", ReasonKernelConfigTooSmall: "kernel_config_too_small",
	ReasonRefused: "operation_refused", ReasonOther: "operation_failed",
}

// String is the name of the reason in the JSON record.
func (r Reason) String() string { return name(reasonNames[:], int(r)) }

// UnknownStatus is the exit status of a process that ended unseen. No status of
// wait(2) is negative.
const UnknownStatus = -1

// CoreRange is a rectangle of logical cores, both corners included.
type CoreRange struct{ X0, Y0, X1, Y1 uint16 }

// Cores is the number of cores in the rectangle.
func (c CoreRange) Cores() int {
	return (int(c.X1) - int(c.X0) + 1) * (int(c.Y1) - int(c.Y0) + 1)
}

// Capacity is the size of one region of a device.
type Capacity struct {
	// Banks is the number of banks on each chip.
	Banks uint32 `json:"banks"`
	// BytesPerBank is the space in each bank that can be allocated.
	BytesPerBank uint64 `json:"bytes_per_bank"`
	// Base is the address in each bank where this space begins; 0 if it is not known.
	Base uint64 `json:"base_address,omitempty"`
}

// CountsTo returns to whom a ProcessStart or a Mark counts where users have shares.
func (e *Event) CountsTo() int { return cmp.Or(int(e.Count), e.UID) }

// Total returns the capacity of all banks, in bytes.
func (c Capacity) Total() uint64 { return uint64(c.Banks) * c.BytesPerBank }

// A Start describes the process of a ProcessStart.
type Start struct {
	// Command is the command line.
	Command string
	// Library is the path of the traced library and Release its release; "" if they are not known.
	Library string
	Release string
	// Container is the id of the container that the process runs in, Pod the
	// uid of its Kubernetes pod, and ContainerPID the process's id in its own
	// PID namespace; "" and 0 if it is in none.
	Container    string
	Pod          string
	ContainerPID int
	// AttachedLate marks a process that had opened a device before it was
	// attached. The circular buffers and kernels of its programs are reported
	// when they run next.
	AttachedLate bool
}

// An Open describes the chips of a DeviceOpen.
type Open struct {
	// Capacities are by region.
	Capacities [BankedRegions]Capacity
	// Board is the name of the chips' board; "" if the host does not know it.
	Board string
	// Arch is the chips' architecture; "" if it is not known.
	Arch string
}

// LeastUsed is the lowest address that Uses have, LEAST_ADDRESS in bpf/src/uses.h: lower numbers are sizes and counts.
const LeastUsed = 0x18000

// Uses are the addresses, in each bank, of the buffers that a run of a program reads or writes: in order, each
// once.
type Uses struct {
	// Arguments come from the arguments of the program's kernels. Other numbers among these may look like an
	// address, so that what is not the first address of a live buffer means nothing.
	Arguments []uint32
	// Statics are the addresses of the program's circular and dataflow buffers that lie in L1 buffers, perhaps not
	// at their beginning.
	Statics []uint32
	// Partial is true if there may be more, which were not read.
	Partial bool
}

// Event is one event. Kind decides which fields are set; the comments name the kinds. There are as many
// as allocations, and they wait in queues, so the size matters: 264 bytes. What only
// rare kinds have is behind pointers.
type Event struct {
	// TimeNs is CLOCK_MONOTONIC in ns, taken in the kernel at the probe.
	TimeNs uint64
	// PID and TID are in the tracer's PID namespace.
	PID int
	TID int
	// Comm is the kernel's name of the thread.
	Comm string

	// Devices are the ids of all chips of the event; a buffer on a mesh is one
	// event with all chips of the mesh. They must not be modified, because
	// events of one device share the slice.
	Devices []int

	// BufferID is Buffer::unique_id_, unique within a process. Alloc, Free, BufferWrite, BufferRead.
	BufferID uint64
	// Object is the Buffer's address in the process. Alloc, Free, Owner.
	Object uint64
	// Allocator is the address of the allocator in the process. All its buffers
	// end together. Alloc, Free, AllocFailed, DeviceOpen, DeviceClose.
	Allocator uint64
	// Address is the device's address of the memory in each bank. Alloc, Free,
	// CBAlloc.
	Address uint64
	// SizeBytes is Buffer::size_ on each chip; for CBAlloc the bytes on each
	// core; for KernelLoad the binary's bytes in DRAM on each chip; for HostMemory what is resident.
	SizeBytes uint64
	// PageSizeBytes is Buffer::page_size_. Alloc, AllocFailed.
	PageSizeBytes uint64
	// BytesPerBank is the memory in each of Banks banks on each chip, equal to
	// that of tt-metal's allocator. Alloc, Free, AllocFailed. For KernelLoad it
	// is the bytes of text in each core's L1, for HostMemory the most that was resident.
	BytesPerBank uint64
	Banks        uint32

	Kind       Kind
	Region     Region
	Layout     Layout
	StaticKind StaticKind
	// KernelKind is for KernelLoad.
	KernelKind KernelKind
	Reason     Reason
	// PerCore marks a buffer that the hybrid allocator placed on single cores and not in all
	// banks. Cores are nil if they could not be read, and Address is 0 if the addresses on them
	// differ. Alloc, AllocFailed.
	PerCore bool
	// Global marks a CBAlloc inside an L1 buffer, which counts its memory.
	Global bool
	// BeforeAttach marks an allocation from before the process was attached,
	// which was read from its memory and has no stack. Alloc, CBAlloc,
	// KernelLoad; and Free of such a buffer.
	BeforeAttach bool
	// Reread marks a correction of a lost event. It was derived from reading the process's
	// memory again, or from another Buffer at the address of a freed one. It has the time of
	// that discovery, and no stack. Alloc, Free, DeviceOpen, DeviceClose. A ProcessStart with it is of the
	// same process as the one before it, which lacked the command line.
	Reread bool
	// Mesh is true if the device is a MeshDevice. DeviceOpen, DeviceClose.
	Mesh bool

	// Stack is the call stack; nil if none was taken.
	Stack *Stack
	// Start is for ProcessStart, and Open for DeviceOpen. They must not be modified, because events share
	// them; see Started and Opened.
	Start *Start
	Open  *Open
	// State is the state of a Checkpoint.
	State *State
	// Uses are the addresses that the program of a ProgramRun reads or writes; nil if they were not recorded. They
	// must not be modified: see Start.
	Uses *Uses

	// ProgramID is ProgramImpl's id, unique within a process: CB*, Kernel*, ProgramRun. Of a captured
	// trace it is the trace's number: Trace*.
	ProgramID uint64
	// Cores are the cores of a circular buffer, of a kernel, or of a buffer with PerCore.
	// CBAlloc, KernelLoad, Alloc.
	Cores []CoreRange
	// Message is the text of the library's exception. AllocFailed, OperationFailed. For Owner it is the tensor. A Free
	// that aggregate.State.Completed passes on has the Cause and the Message of its buffer's Owner.
	Message string
	// Count is the number of lost events, and Cause their cause. Lost. For Mark,
	// Cause is the name, for Owner the path. For Owner, Count is the time of the ProcessStart of its
	// process: another process with the same id may have a buffer with the same BufferID. For
	// ProcessStart and Mark, it is the user to whom it counts, if that is not UID: see host.RealUser.
	Count uint64
	Cause string
	// UID is the user that the process runs as. ProcessStart and Mark.
	UID int
	// ExitStatus is as in wait(2), or UnknownStatus. ProcessExit.
	ExitStatus int
}

// Started returns Start; without one, a Start of which nothing is known.
func (e *Event) Started() *Start { return orZero(e.Start) }

// Opened returns Open; without one, an Open of which nothing is known.
func (e *Event) Opened() *Open { return orZero(e.Open) }

func orZero[T any](v *T) *T {
	if v == nil {
		return new(T)
	}
	return v
}

// State is an encoded aggregate.State: Data refers to Stacks by their numbers.
type State struct {
	Data   []byte
	Stacks []*Stack
	// Invalid is set by whoever could not restore it.
	Invalid bool
}

// IsInvalid reports whether the event is a checkpoint that could not be restored.
func (e *Event) IsInvalid() bool { return e.Kind == Checkpoint && (e.State == nil || e.State.Invalid) }

func name(names []string, i int) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return ""
}

// IsEnd reports whether an allocation ended with its device or process, without being freed.
func (r Reason) IsEnd() bool { return r == ReasonDeviceClose || r == ReasonProcessExit }

// IsImplied reports whether the event may be missing from some streams of the same events, because
// another event implies it, a recording adds it, or it is a sample.
func (e *Event) IsImplied() bool {
	return e.Reason.IsEnd() || e.Kind == ProcessExit || e.Kind == Lost || e.Kind == HostMemory
}

// Happens reports whether the event is an allocation, the end of one or the run of a program, and
// not a report of an allocation from before the beginning.
func (e *Event) Happens() bool {
	return (e.Kind >= Alloc && e.Kind <= KernelUnload || e.Kind == ProgramRun) && !e.BeforeAttach
}
