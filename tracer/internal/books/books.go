// Package books keeps the books of a process: its devices, live buffers and programs. It turns the
// kernel's records of them, and what is read from the process's memory, into events.
package books

import (
	"context"
	"unsafe"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/quota"
)

// Events take these numbers from records as they are: a constant overflows unless both numbers are equal.
const (
	_ = -(bpf.StaticCircularBuffer ^ uint8(event.CircularBuffer))
	_ = -(bpf.StaticDataflowBuffer ^ uint8(event.DataflowBuffer))
	_ = -(bpf.StaticScratchpad ^ uint8(event.Scratchpad))
	_ = -(uint8(bpf.KernelKernelKindKERNEL_QUEUE) ^ uint8(event.QueueKernels))
	_ = -(uint8(bpf.KernelKernelKindKERNEL_FABRIC) ^ uint8(event.FabricKernels))
	_ = -(uint8(bpf.KernelKernelKindKERNEL_RUNTIME) ^ uint8(event.RuntimeKernels))
	_ = -(uint(len(bpf.KernelDeviceRecord{}.Banks)) ^ uint(event.BankedRegions))
)

// A Process is what the books need of their process.
type Process interface {
	// Emit passes on a copy of an event of the process.
	Emit(*event.Event)
	// Lost counts a record that could not be used.
	Lost(cause string)
	// Read has the memory of the process read: see reads.add.
	Read(timeNs uint64, do func(context.Context, host.ReadableProcess) (report func())) bool
	// Parent returns the books of its parent; nil if that is not known.
	Parent() *Books
	// Board returns the name of the boards that chips sit on; "" if it is not known.
	Board(chips []int) string
}

// Books are those of one process. They are not safe for concurrent use.
type Books struct {
	process Process
	stacks  *stack.Process
	// Sharer says whose quota the buffers and programs take: host.Sharer.
	Sharer int
	room   *quota.Quota
	share  quota.Share // of Live and programs

	devices    map[uint64]*device
	impls      map[uint64]uint64 // meshes by their MeshDeviceImpl
	allocators map[uint64]*allocator
	// Live are the allocated buffers by the address of their Buffer, with bytes in each region, and Peaks the
	// most since a device was closed.
	Live map[uint64]Buffer
	// places has the addresses of their Buffers by the keys of their places; nil until a view is
	// transferred.
	places       map[uint64]uint64
	bytes, Peaks [event.NumRegions]uint64
	// programs are those with memory, by id. runs are the latest runs of programs, by their ids.
	programs map[uint64]program
	runs     map[uint64]latestRun
	// unread are the programs that are being read, by id
	unread map[uint64][]*programRead
	// compiled are the KernelLoads of programs that are compiled and not loaded yet, oldest first.
	compiled []*event.Event
	// isCompiled has the ids of the compiled ones.
	isCompiled map[uint64]bool
	// thrown are the exceptions that may not have left the library, oldest first
	thrown []thrown
	lost   event.Event // of endLost, where it needs no memory each time

	// Forked is true if the process has the library from its parent. firstID is the id of its first own
	// buffer, at least; 0: none.
	Forked  bool
	firstID uint64
	// ReadNs is when what was read from its memory was reported last: no event of that is earlier.
	ReadNs uint64
	// early counts the allocations from before all probes were in place, since its memory was last read: they
	// are reported from there.
	early int
	// Missed is true if the process mapped its library while it was traced, but before the probes were in place. It
	// has lost allocations then, unless it had made none, or a device is seen, whose buffers are.
	Missed bool
	// readIDs are the ids of the Buffers that a late attach read, by address.
	readIDs map[uint64]uint64
	changes *Changes // nil: they are not followed
}

// New returns the books of a process, which has nothing. room is what the processes of each user may have.
func New(of Process, stacks *stack.Process, room *quota.Quota) *Books {
	return &Books{
		process: of, stacks: stacks, room: room,
		devices: make(map[uint64]*device), impls: make(map[uint64]uint64), allocators: make(map[uint64]*allocator),
		Live: make(map[uint64]Buffer), programs: make(map[uint64]program), runs: make(map[uint64]latestRun),
		unread: make(map[uint64][]*programRead), isCompiled: make(map[uint64]bool),
	}
}

// Changes are the Buffers and allocators that events were about since Follow, by address. What was read
// of them may be older.
type Changes struct{ buffers, allocators map[uint64]bool }

// maxChanges bounds the Buffers and allocators that are followed.
const maxChanges = 1 << 20

// Full reports whether there were more changes than are followed.
func (c *Changes) Full() bool { return len(c.buffers)+len(c.allocators) >= maxChanges }

// Follow begins to follow changes, from none.
func (b *Books) Follow() *Changes {
	b.changes = &Changes{make(map[uint64]bool), make(map[uint64]bool)}
	return b.changes
}

// Unfollow ends that.
func (b *Books) Unfollow() { b.changes = nil }

// touch notes that an event is about a Buffer.
func (b *Books) touch(object uint64) {
	if b.changes != nil && !b.changes.Full() {
		b.changes.buffers[object] = true
	}
}

// changed reports whether events were about a Buffer, or ended its allocator.
func (c *Changes) changed(object, allocator uint64) bool {
	return c.buffers[object] || c.allocators[allocator]
}

// fits counts what the process has, with more buffers or programs, and counts a loss if that is beyond the
// limit of its user.
func (b *Books) fits(more int) bool {
	fits := b.share.Hold(b.room, b.Sharer, len(b.Live)+quota.Program*len(b.programs)+more)
	if !fits {
		b.process.Lost(quota.Beyond)
	}
	return fits
}

// End ends the books with their process: its programs that are being read are lost, and what it had
// makes room for others.
func (b *Books) End() {
	b.EndReads(ProgramGone)
	b.EndThrown()
	b.share.Release(b.room)
}

// A handler turns a record into events; false if it is not understood. It may change e, which is the next record's
// afterwards.
type handler func(b *Books, e *event.Event, l *libraries.Library, raw []byte) bool

var handlers = [...]handler{
	bpf.RecordAlloc:          whole((*Books).alloc),
	bpf.RecordAllocPerCore:   begun((*Books).allocPerCore, unsafe.Offsetof(bpf.KernelPerCoreRecord{}.Cores)),
	bpf.RecordFree:           whole((*Books).free),
	bpf.RecordFailed:         begun((*Books).exception, unsafe.Offsetof(bpf.KernelFailedRecord{}.Message)),
	bpf.RecordCaught:         whole((*Books).caught),
	bpf.RecordClear:          whole((*Books).clear),
	bpf.RecordDevice:         begun((*Books).device, unsafe.Offsetof(bpf.KernelDeviceRecord{}.Chips)),
	bpf.RecordCB:             begun((*Books).cb, unsafe.Offsetof(bpf.KernelCbRecord{}.Ranges)),
	bpf.RecordProgramEnd:     whole((*Books).programEnd),
	bpf.RecordProgramRun:     begun((*Books).programRun, unsafe.Offsetof(bpf.KernelProgramRunRecord{}.Uses)),
	bpf.RecordTrace:          whole((*Books).traceStep),
	bpf.RecordBanks:          whole((*Books).changeBanks),
	bpf.RecordProgramSeen:    whole((*Books).programSeen),
	bpf.RecordKernel:         whole((*Books).kernelLoaded),
	bpf.RecordTransfer:       whole((*Books).transferred),
	bpf.RecordBinariesLoaded: whole((*Books).binariesLoaded),
}

func whole[T any](use func(*Books, *event.Event, *libraries.Library, *T)) handler {
	return handlerOf(bpf.As[T], use)
}

// begun is for a record whose last field, at the offset fixed, is a list.
func begun[T any](use func(*Books, *event.Event, *libraries.Library, *T), fixed uintptr) handler {
	return handlerOf(func(raw []byte) *T { return bpf.Begun[T](raw, fixed) }, use)
}

func handlerOf[T any](as func([]byte) *T, use func(*Books, *event.Event, *libraries.Library, *T)) handler {
	return func(b *Books, e *event.Event, l *libraries.Library, raw []byte) bool {
		r := as(raw)
		if r != nil {
			use(b, e, l, r)
		}
		return r != nil
	}
}

// Decode turns a record into events. e has the time, process and thread of the record, and l is the library
// that it is about, nil if that is not known. Decode changes e, and returns false if the record is not understood.
func (b *Books) Decode(kind uint8, e *event.Event, l *libraries.Library, raw []byte) bool {
	return int(kind) < len(handlers) && handlers[kind] != nil && handlers[kind](b, e, l, raw)
}

// unknownLibrary is the cause of losses of records whose library is not known.
const unknownLibrary = "library not known"

// UnknownType is the cause of losses of buffers whose type this version does not know.
const UnknownType = "buffer of an unknown type"

// Uncorrected reports whether reading the memory of a process does not correct a loss, by its cause.
func Uncorrected(cause string) bool {
	switch cause {
	case quota.Beyond, UnknownType, unknownLibrary, badChip, manyDevices, manyAllocators:
		return true
	}
	return false
}

// OnlyBuffers reports whether a cause of losses concerns only buffers and devices.
func OnlyBuffers(cause string) bool {
	return cause == noDevice || cause == noAllocator || cause == noShards
}

// maxAncestors bounds how many generations of forks are followed back.
const maxAncestors = 16

// ancestor reports whether a condition is true for one of the processes that this one descends from and
// that were attached late.
func (b *Books) ancestor(condition func(*Books) bool) bool {
	for range maxAncestors {
		if b = b.process.Parent(); b == nil {
			return false
		} else if condition(b) {
			return true
		}
	}
	return false
}

// InheritsAll reports whether a fork has no buffer of its own yet. It may have lost its first ones, which
// then look the same as those that it inherited.
func (b *Books) InheritsAll() bool { return b.Forked && b.firstID == 0 }

// inherited reports whether a Buffer is a copy of an ancestor's Buffer: a fork copies the
// object, but not the device memory.
func (b *Books) inherited(read *heap.Buffer) bool {
	if b.InheritsAll() || b.Forked && read.ID < b.firstID {
		return true // ids ascend
	}
	return b.ancestor(func(a *Books) bool {
		id, ok := a.readIDs[read.Object]
		live, known := a.Live[read.Object]
		return ok && id == read.ID || known && live.ID == read.ID
	})
}
