package tracer

import (
	"context"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/libraries"
	"ttmem/tracer/quota"
	"ttmem/tracer/stack"
)

// Events take these numbers from records as they are. Each pair of constants overflows
// unless the two numbers are equal.
const (
	_ = bpf.StaticCircularBuffer - uint8(event.CircularBuffer)
	_ = uint8(event.CircularBuffer) - bpf.StaticCircularBuffer
	_ = bpf.StaticDataflowBuffer - uint8(event.DataflowBuffer)
	_ = uint8(event.DataflowBuffer) - bpf.StaticDataflowBuffer
	_ = bpf.StaticScratchpad - uint8(event.Scratchpad)
	_ = uint8(event.Scratchpad) - bpf.StaticScratchpad
	_ = uint8(bpf.KernelKernelKindKERNEL_QUEUE) - uint8(event.QueueKernels)
	_ = uint8(event.QueueKernels) - uint8(bpf.KernelKernelKindKERNEL_QUEUE)
	_ = uint8(bpf.KernelKernelKindKERNEL_FABRIC) - uint8(event.FabricKernels)
	_ = uint8(event.FabricKernels) - uint8(bpf.KernelKernelKindKERNEL_FABRIC)
	_ = uint8(bpf.KernelKernelKindKERNEL_RUNTIME) - uint8(event.RuntimeKernels)
	_ = uint8(event.RuntimeKernels) - uint8(bpf.KernelKernelKindKERNEL_RUNTIME)
	_ = uint(len(bpf.KernelDeviceRecord{}.Banks) - event.BankedRegions)
	_ = uint(event.BankedRegions - len(bpf.KernelDeviceRecord{}.Banks))
)

// decoder turns the kernel's records into events. It keeps the devices and allocators of
// each process.
type decoder struct {
	host      hostView
	spaces    *stack.Spaces // nil: no stacks are taken
	processes map[int]*traced
	// queue has the events in the order in which they arrived.
	queue ordered
	// lost counts unseen events and malformed records that are not reported yet.
	lost map[loss]lossCount
	// newest is the time of the newest record.
	newest uint64
	// markAt are the functions whose calls are marks.
	markAt []string
	// show are the options for call stacks.
	show stack.Options
	// stacks is what the stacks of all processes share. stackRecords counts the records of stacks.
	stacks       stack.Shared
	stackRecords int
	// ended are the processes that had ended at the last sweep.
	ended []int
	// recovering are the processes that lost events and whose figures are not right again.
	recovering map[int]*traced
	// throwing are the processes with exceptions that may not have left the library.
	throwing map[int]*traced
	// reads reads the programs and command lines of processes. Its inbox has all that other
	// goroutines found.
	reads *reads
	// taken is the number of buffers of late attaches, and of owners, that were reported since the
	// last tick.
	taken int
	// room is what the processes of each user may have.
	room *quota.Quota
	// searches are those for owners, also at marks if ownersAtMarks is true.
	searches      searches
	ownersAtMarks bool
	// countedNs and sweptNs are when losses were counted and processes checked.
	countedNs, sweptNs uint64
	// stackSeen gets the stacks that on_stack sends; nil outside tests.
	stackSeen func(*bpf.KernelHeader, *event.Stack)
}

// hostView is what the decoder needs from the finder.
type hostView interface {
	// library returns the library that records name by this index; nil if there is none.
	library(index uint8) *libraries.Library
	// startOf describes a process as it was when it was discovered. Its command line may be
	// missing.
	startOf(pid int) event.Event
	// lateOf returns the state of a process whose memory is being read; nil for others.
	lateOf(pid int) *lateAttach
	// processEnded forgets a process that has ended or, if execed is true, has executed
	// another program. traced is true if it sent records.
	processEnded(pid int, timeNs uint64, execed, traced bool)
	// takeLosses passes on what the kernel side lost since the last call.
	takeLosses(each func(bpf.KernelLossKey, bpf.KernelLoss))
	// readAgain reads the live buffers of a process again; nil if that is not possible now.
	readAgain(pid int, allocators []uint64, programs bool) *reread
	// searchOwners looks for who holds live buffers of a process, and gives the result to takeOwners.
	searchOwners(pid int, s *search, live map[uint64]liveBuffer, of *owners) (stop context.CancelFunc)
}

func newDecoder(view hostView, reads *reads, spaces *stack.Spaces, o *Options) *decoder {
	return &decoder{
		room: quota.New(quota.Allocations, quota.AllAllocations), host: view, reads: reads, spaces: spaces, markAt: o.MarkAt, searches: newSearches(), ownersAtMarks: o.OwnersAtMarks,
		show:      stack.Options{FullNames: o.FullNames, AllFrames: o.AllFrames},
		processes: make(map[int]*traced), lost: make(map[loss]lossCount), recovering: make(map[int]*traced), throwing: make(map[int]*traced),
	}
}

func (d *decoder) emit(e event.Event) { d.queue.push(e) }

// traced is the decoder's state of a process.
type traced struct {
	started bool
	// set when it has started: its user, and the time of its ProcessStart
	user    int
	sinceNs uint64

	devices    map[uint64]*device
	impls      map[uint64]uint64 // meshes by their MeshDeviceImpl
	allocators map[uint64]*allocator
	// share is of live and programs
	share quota.Share
	// live are the allocated buffers by the address of their Buffer
	live map[uint64]liveBuffer
	// names are the threads' names by thread id
	names  map[int]string
	stacks *stack.Process
	// unread are the programs that are being read, by id
	unread map[uint64][]*programRead
	owners owners
	// thrown are the exceptions that may not have left the library, oldest first
	thrown []thrown
	// Set for a process that was attached late: its parent, the time at which its existing
	// memory was reported, and the ids of the Buffers read from its memory, by address.
	parent  int
	lateNs  uint64
	readIDs map[uint64]uint64
	// programs are those with memory, by id. runs are the latest runs of programs, by their ids.
	programs map[uint64]program
	runs     map[uint64]latestRun
	// compiled are the KernelLoads of programs that are compiled and not loaded yet, oldest first.
	compiled []event.Event
	// recovery is set from a loss until the figures are right again. rereads counts how often
	// the memory was read for that, and rereadNs is when it may be read next.
	recovery *recovery
	rereads  int
	rereadNs uint64
}

// A liveBuffer is what an allocated buffer's free needs.
type liveBuffer struct {
	id, allocator uint64
	region        event.Region
	before        bool // it was allocated before the attach
	read          bool // it was read from the process's memory: no event reported it
	complete      bool // its chips, and the bytes on each, are known
}

// liveBufferOf is the buffer of an Alloc.
func liveBufferOf(e *event.Event) liveBuffer {
	return liveBuffer{
		id: e.BufferID, allocator: e.Allocator, region: e.Region, before: e.BeforeAttach, read: e.BeforeAttach || e.Reread,
		complete: e.Devices != nil && e.BytesPerBank != 0 && e.Banks != 0,
	}
}

// A program is one that has memory. Its records say which: bpf.ProgramCBs and so on. timeNs is
// the time of the last record.
type program struct {
	holds  uint8
	timeNs uint64
	placed []placedEnd
	// loaded are the chips with its kernels. unended is true if no record of its end will come.
	loaded  []int
	unended bool
}

// A latestRun says who enqueued a program last.
type latestRun struct {
	tid   int
	stack *event.Stack
}

// placedEnd is where the dataflow buffers and scratchpads of a program on some cores end.
type placedEnd struct {
	cores event.CoreRange
	end   uint64
}

// maxPlaced bounds these for a program. The kernel side reads as many: MAX_ALLOCATORS.
const maxPlaced = 256

type device struct {
	chips []int
	mesh  bool
}

type allocator struct {
	device *device
	banks  [event.BankedRegions]heap.Bank
}

func (d *decoder) newTraced() *traced {
	return &traced{
		stacks:     stack.NewProcess(d.show, &d.stacks),
		devices:    make(map[uint64]*device),
		impls:      make(map[uint64]uint64),
		allocators: make(map[uint64]*allocator),
		live:       make(map[uint64]liveBuffer),
		names:      make(map[int]string),
		programs:   make(map[uint64]program),
		runs:       make(map[uint64]latestRun),
		unread:     make(map[uint64][]*programRead),
	}
}

func (d *decoder) process(pid int) *traced {
	p := d.processes[pid]
	if p == nil {
		p = d.newTraced()
		d.processes[pid] = p
		d.spaces.Changed(pid)
	}
	return p
}

// decode turns a record into zero or more events.
func (d *decoder) decode(raw []byte) {
	h := bpf.As[bpf.KernelHeader](raw)
	if h == nil {
		d.unknown(0, "record too short")
		return
	}
	e := event.Event{
		TimeNs: h.TimeNs,
		PID:    int(h.Tgid),
		TID:    int(h.Tid),
	}
	d.newest = max(d.newest, h.TimeNs)
	known := true
	switch h.Kind {
	case bpf.RecordAlloc:
		known = with(raw, func(r *bpf.KernelBufferRecord) { d.alloc(e, r, nil) })
	case bpf.RecordAllocPerCore:
		known = with(raw, func(r *bpf.KernelPerCoreRecord) { d.allocPerCore(e, r) })
	case bpf.RecordFree:
		known = with(raw, func(r *bpf.KernelFreeRecord) { d.free(e, r) })
	case bpf.RecordFailed:
		known = with(raw, func(r *bpf.KernelFailedRecord) { d.exception(e, r) })
	case bpf.RecordCaught:
		known = with(raw, func(r *bpf.KernelCaughtRecord) { d.caught(e, r) })
	case bpf.RecordClear:
		known = with(raw, func(r *bpf.KernelClearRecord) { d.clear(e, r) })
	case bpf.RecordDevice:
		known = with(raw, func(r *bpf.KernelDeviceRecord) { d.device(e, r) })
	case bpf.RecordCB:
		known = with(raw, func(r *bpf.KernelCbRecord) { d.cb(e, r) })
	case bpf.RecordProgramEnd:
		known = with(raw, func(r *bpf.KernelProgramEndRecord) { d.programEnd(e, r) })
	case bpf.RecordProgramRun:
		known = with(raw, func(r *bpf.KernelProgramRunRecord) { d.programRun(e, r) })
	case bpf.RecordTrace:
		known = with(raw, func(r *bpf.KernelTraceRecord) { d.traceStep(e, r) })
	case bpf.RecordBanks:
		known = with(raw, func(r *bpf.KernelBanksRecord) { d.changeBanks(e, r) })
	case bpf.RecordProgramSeen:
		known = with(raw, func(r *bpf.KernelProgramSeenRecord) { d.programSeen(e, r) })
	case bpf.RecordKernel:
		known = with(raw, func(r *bpf.KernelKernelRecord) { d.kernel(e, r) })
	case bpf.RecordBinariesLoaded:
		d.binariesLoaded(e, h)
	case bpf.RecordNativeStack:
		known = d.process(e.PID).stacks.AddNativeRecord(raw, e.PID, d.spaces)
		d.boundStacks()
	case bpf.RecordPythonStack:
		known = d.process(e.PID).stacks.AddPythonRecord(raw)
		d.boundStacks()
	case bpf.RecordCode:
		known = d.process(e.PID).stacks.AddCodeRecord(raw)
		d.boundStacks()
	case bpf.RecordUnloaded:
		d.spaces.Changed(e.PID)
	case bpf.RecordMark:
		known = d.mark(e, h.Count)
	case bpf.RecordStack:
		if d.stackSeen != nil {
			d.stackSeen(h, d.process(e.PID).stacks.Stack(h.Stack))
		}
	case bpf.RecordExec, bpf.RecordExit:
		known = with(raw, func(r *bpf.KernelProcessRecord) { d.processEnd(e, r) })
	default:
		known = false
	}
	if !known {
		d.unknown(e.PID, "record not understood")
	}
}

func with[T any](raw []byte, use func(*T)) bool {
	r := bpf.As[T](raw)
	if r != nil {
		use(r)
	}
	return r != nil
}

// mark reports a call that is a mark. It returns false if the mark has no name.
func (d *decoder) mark(e event.Event, name uint32) bool {
	if int(name) >= len(d.markAt) {
		return false
	}
	e.Kind, e.Cause, e.UID = event.Mark, d.markAt[name], d.host.startOf(e.PID).UID
	d.emit(e)
	d.wantAtMark(e.PID)
	return true
}
