package tracer

import (
	"context"
	"unsafe"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
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

// decoder is the event loop: it turns the kernel's records, and what others discovered and read, into
// events.
type decoder struct {
	registry
	kernel    kernelSide
	libraries *libraries.Set
	spaces    *stack.Spaces // nil: no stacks are taken
	// inbox has all that other goroutines found, and reads reads programs and command lines.
	inbox *inbox
	reads *reads
	// search and reread begin to read a process's memory.
	search func(*process, *search) context.CancelFunc
	reread func(*process, *reread, []uint64)
	// locate looks for the library that a process maps: see find.Finder.Locate.
	locate  func(pid, user int)
	closing context.Context // done when tracing ends
	Options

	// queue has the events in the order in which they arrived.
	queue ordered
	// unattributed are the losses of no known process, by cause.
	unattributed map[string]lossCount
	// kernelLosses were taken from the kernel side, and are not counted yet.
	kernelLosses []kernelLoss
	// newest is the time of the newest record, and all records up to known were decoded.
	newest, known uint64
	// show are the options for call stacks.
	show stack.Options
	// stacks is what the stacks of all processes share. stackRecords counts the records of stacks.
	stacks       stack.Shared
	stackRecords int
	// taken is the number of buffers of late attaches, and of owners, that were reported since the
	// last tick.
	taken int
	// room is what the processes of each user may have.
	room *quota.Quota
	// waiting are the processes whose memory from before the attach is to be read. late and rereading limit
	// such reads, and those after a loss.
	waiting         []*process
	late, rereading turns
	searches        searches
	// countedNs, namedNs and sweptNs are when losses were counted, command lines read again, and
	// processes checked.
	countedNs, namedNs, sweptNs uint64
	objectsEnded                chan struct{} // gets something when a process ends that may have objects in the kernel side
	// stackSeen gets the stacks that on_stack sends; nil outside tests.
	stackSeen func(*bpf.KernelHeader, *event.Stack)
}

// kernelSide is what the event loop asks the kernel side.
type kernelSide interface {
	Runs(kernel.Program) bool
	TakeLosses(func(bpf.KernelLossKey, bpf.KernelLoss)) error
	ForgetPrograms(pid int) error
	ChangeProcess(p kernel.Program, flags, space uint32) bool
}

func newDecoder(ctx context.Context, k kernelSide, libraries *libraries.Set, spaces *stack.Spaces, readers *host.Readers, o *Options) *decoder {
	d := &decoder{
		registry: newRegistry(), room: quota.New(quota.Allocations, quota.AllAllocations), kernel: k, libraries: libraries, spaces: spaces, inbox: new(inbox), closing: ctx, Options: *o,
		searches: newSearches(), show: stack.Options{FullNames: o.FullNames, AllFrames: o.AllFrames},
		unattributed: make(map[string]lossCount), objectsEnded: make(chan struct{}, 1),
	}
	d.reads = newReads(ctx, readers, d.inbox)
	d.search, d.reread = d.searchOwners, d.readAgain
	return d
}

func (d *decoder) emit(e event.Event) { d.queue.push(e) }

// decode turns a record into zero or more events.
func (d *decoder) decode(raw []byte) {
	h := bpf.As[bpf.KernelHeader](raw)
	if h == nil {
		d.unknown(nil, "record too short")
		return
	}
	e := event.Event{
		TimeNs: h.TimeNs,
		PID:    int(h.Tgid),
		TID:    int(h.Tid),
	}
	d.newest = max(d.newest, h.TimeNs)
	program := kernel.Program{PID: e.PID, ExecID: h.ExecId}
	var p *process
	known := true
	switch h.Kind {
	case bpf.RecordExec:
		d.exec(program, e.TimeNs)
		return
	case bpf.RecordExit:
		if !with(raw, func(r *bpf.KernelProcessRecord) { d.exit(program, e.TimeNs, int(r.ExitCode)) }) {
			d.unknown(nil, "record not understood")
		}
		return
	case bpf.RecordUnloaded:
		d.spaces.Changed(e.PID)
		return
	case bpf.RecordFree, bpf.RecordCaught, bpf.RecordClear, bpf.RecordBanks, bpf.RecordBinariesLoaded:
		if p = d.follow(program, e.TimeNs, false); p == nil {
			return // a forked child frees what it inherited
		}
	default:
		if p = d.follow(program, e.TimeNs, true); p == nil {
			d.unknown(nil, "record of a program that has ended")
			return
		}
	}
	p.unlisted = false
	switch h.Kind {
	case bpf.RecordAlloc:
		known = with(raw, func(r *bpf.KernelBufferRecord) { d.alloc(p, e, r, nil) })
	case bpf.RecordAllocPerCore:
		known = begun(raw, unsafe.Offsetof(bpf.KernelPerCoreRecord{}.Cores), func(r *bpf.KernelPerCoreRecord) { d.allocPerCore(p, e, r) })
	case bpf.RecordFree:
		known = with(raw, func(r *bpf.KernelFreeRecord) { d.free(p, e, r) })
	case bpf.RecordFailed:
		known = begun(raw, unsafe.Offsetof(bpf.KernelFailedRecord{}.Message), func(r *bpf.KernelFailedRecord) { d.exception(p, e, r) })
	case bpf.RecordCaught:
		known = with(raw, func(r *bpf.KernelCaughtRecord) { p.caught(e, r) })
	case bpf.RecordClear:
		known = with(raw, func(r *bpf.KernelClearRecord) { d.clear(p, e, r) })
	case bpf.RecordDevice:
		known = begun(raw, unsafe.Offsetof(bpf.KernelDeviceRecord{}.Chips), func(r *bpf.KernelDeviceRecord) { d.device(p, e, r) })
	case bpf.RecordCB:
		known = begun(raw, unsafe.Offsetof(bpf.KernelCbRecord{}.Ranges), func(r *bpf.KernelCbRecord) { d.cb(p, e, r) })
	case bpf.RecordProgramEnd:
		known = with(raw, func(r *bpf.KernelProgramEndRecord) { d.programEnd(p, e, r) })
	case bpf.RecordProgramRun:
		known = with(raw, func(r *bpf.KernelProgramRunRecord) { d.programRun(p, e, r) })
	case bpf.RecordTrace:
		known = with(raw, func(r *bpf.KernelTraceRecord) { d.traceStep(p, e, r) })
	case bpf.RecordBanks:
		known = with(raw, func(r *bpf.KernelBanksRecord) { d.changeBanks(p, e, r) })
	case bpf.RecordProgramSeen:
		known = with(raw, func(r *bpf.KernelProgramSeenRecord) { d.programSeen(p, e, r) })
	case bpf.RecordKernel:
		known = with(raw, func(r *bpf.KernelKernelRecord) { d.kernelLoaded(p, e, r) })
	case bpf.RecordBinariesLoaded:
		d.binariesLoaded(p, e, h)
	case bpf.RecordNativeStack:
		known = p.stacks.AddNativeRecord(raw, e.PID, d.spaces)
		d.boundStacks()
	case bpf.RecordPythonStack:
		known = p.stacks.AddPythonRecord(raw)
		d.boundStacks()
	case bpf.RecordCode:
		known = p.stacks.AddCodeRecord(raw)
		d.boundStacks()
	case bpf.RecordMark:
		known = d.mark(p, e, h.Count)
	case bpf.RecordStack:
		if d.stackSeen != nil {
			d.stackSeen(h, p.stacks.Stack(h.Stack))
		}
	default:
		known = false
	}
	if !known {
		d.unknown(p, "record not understood")
	}
}

func with[T any](raw []byte, use func(*T)) bool {
	r := bpf.As[T](raw)
	if r != nil {
		use(r)
	}
	return r != nil
}

// begun is with for a record whose last field, at the offset fixed, is a list.
func begun[T any](raw []byte, fixed uintptr, use func(*T)) bool {
	r := bpf.Begun[T](raw, fixed)
	if r != nil {
		use(r)
	}
	return r != nil
}

// mark reports a call that is a mark. It returns false if the mark has no name.
func (d *decoder) mark(p *process, e event.Event, name uint32) bool {
	if int(name) >= len(d.MarkAt) {
		return false
	}
	e.Kind, e.Cause, e.UID = event.Mark, d.MarkAt[name], p.described().UID
	d.emit(e)
	d.wantAtMark(p)
	return true
}
