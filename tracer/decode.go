package tracer

import (
	"encoding/binary"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/stack"
)

// lostCauses say what was lost.
var lostCauses = [bpf.KernelLostCauseLOST_CAUSES]string{
	bpf.KernelLostCauseLOST_RING_FULL:          "ring buffer full",
	bpf.KernelLostCauseLOST_BUFFER_UNREADABLE:  "buffer not readable",
	bpf.KernelLostCauseLOST_DEVICE_UNREADABLE:  "device not readable",
	bpf.KernelLostCauseLOST_PROGRAM_UNREADABLE: "program not readable",
	bpf.KernelLostCauseLOST_MAP_FULL:           "kernel map full",
	bpf.KernelLostCauseLOST_NO_THREAD_STATE:    "no memory for a thread's state",
}

// These are the same for the kernel side and in events: of two equal numbers each can be
// taken from the other.
const (
	_ = bpf.StaticCircularBuffer - uint8(event.CircularBuffer)
	_ = uint8(event.CircularBuffer) - bpf.StaticCircularBuffer
	_ = bpf.StaticDataflowBuffer - uint8(event.DataflowBuffer)
	_ = uint8(event.DataflowBuffer) - bpf.StaticDataflowBuffer
	_ = bpf.StaticScratchpad - uint8(event.Scratchpad)
	_ = uint8(event.Scratchpad) - bpf.StaticScratchpad
	_ = uint(len(bpf.KernelDeviceRecord{}.Banks) - event.BankedRegions)
	_ = uint(event.BankedRegions - len(bpf.KernelDeviceRecord{}.Banks))
)

// decoder turns the kernel's records into events. It knows of each process which
// devices and allocators it has.
type decoder struct {
	host      hostView
	spaces    *stack.Spaces // nil: no stacks are taken
	processes map[int]*traced
	// queue has the events, in the order in which they came.
	queue ordered
	// lost counts what could not be seen, and records that make no sense, by cause.
	lost map[string]uint64
	// newest is the time of the newest record.
	newest uint64
	// markAt are the functions whose calls are marks.
	markAt []string
	// show says how stacks are shown.
	show stack.Options
	// lastStack counts the stacks.
	lastStack uint64
	// ended are the processes that had ended when sweep was last called.
	ended []int
	// stackSeen is given what on_stack sends; nil outside tests.
	stackSeen func(*bpf.KernelHeader, *event.Stack)
}

// hostView are what the decoder asks of what finds processes and libraries on the host.
type hostView interface {
	// library is the one with an index in records; nil where there is none.
	library(index uint8) *library
	// startOf is the start of a process, as it was when it was seen first.
	startOf(pid int) event.Event
	// lateOf is what is kept of a process while its memory is read; nil for others.
	lateOf(pid int) *lateAttach
	// processEnded forgets a process that has ended, or has become another program
	// (execed). stacks are those that came from it: nil where nothing did.
	processEnded(pid int, timeNs uint64, execed bool, stacks *stack.Process)
}

func newDecoder(found hostView, spaces *stack.Spaces, show stack.Options) *decoder {
	return &decoder{
		host: found, spaces: spaces, show: show,
		processes: make(map[int]*traced), lost: make(map[string]uint64),
	}
}

func (d *decoder) emit(e event.Event) { d.queue.push(e) }

// unknown counts what could not be understood.
func (d *decoder) unknown(cause string) { d.lost[cause]++ }

// traced is what the decoder knows of a process.
type traced struct {
	started    bool
	devices    map[uint64]*device
	allocators map[uint64]*allocator
	// live are the buffers that have memory, by the Buffer's address
	live map[uint64]liveBuffer
	// names are the threads' names by their ids
	names  map[int]string
	stacks *stack.Process
	// parent, of a process that was attached late, and when what it had was reported;
	// found are the Buffers that it had, by address, with their ids
	parent int
	lateNs uint64
	found  map[uint64]uint64
}

type liveBuffer struct {
	id, allocator uint64
	before        uint64 // allocated before the attach, and reported at this time
}

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
		stacks:     stack.NewProcess(d.show, &d.lastStack),
		devices:    make(map[uint64]*device),
		allocators: make(map[uint64]*allocator),
		live:       make(map[uint64]liveBuffer),
		names:      make(map[int]string),
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

// decode turns a record into no, one or several events.
func (d *decoder) decode(raw []byte) {
	h := bpf.As[bpf.KernelHeader](raw)
	if h == nil {
		d.unknown("record too short")
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
		known = with(raw, func(r *bpf.KernelBufferRecord) { d.alloc(e, r) })
	case bpf.RecordFree:
		known = with(raw, func(r *bpf.KernelFreeRecord) { d.free(e, r) })
	case bpf.RecordFailed:
		known = with(raw, func(r *bpf.KernelFailedRecord) { d.failed(e, r) })
	case bpf.RecordClear:
		known = with(raw, func(r *bpf.KernelClearRecord) { d.clear(e, r) })
	case bpf.RecordDevice:
		known = with(raw, func(r *bpf.KernelDeviceRecord) { d.device(e, r) })
	case bpf.RecordCB:
		known = with(raw, func(r *bpf.KernelCbRecord) { d.cb(e, r) })
	case bpf.RecordProgramEnd:
		known = with(raw, func(r *bpf.KernelProgramEndRecord) { d.programEnd(e, r) })
	case bpf.RecordProgramMet:
		known = with(raw, func(r *bpf.KernelProgramMetRecord) { d.programMet(e, r) })
	case bpf.RecordKernel:
		known = with(raw, func(r *bpf.KernelKernelRecord) { d.kernel(e, r) })
	case bpf.RecordNativeStack:
		known = d.process(e.PID).stacks.AddNativeRecord(raw, e.PID, d.spaces)
	case bpf.RecordPythonStack:
		known = d.process(e.PID).stacks.AddPythonRecord(raw)
	case bpf.RecordCode:
		known = d.process(e.PID).stacks.AddCodeRecord(raw)
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
		d.unknown("record not understood")
	}
}

func with[T any](raw []byte, use func(*T)) bool {
	r := bpf.As[T](raw)
	if r != nil {
		use(r)
	}
	return r != nil
}

// maxNames bounds how many threads' names are remembered of a process.
const maxNames = 1 << 14

// start reports a process before the first event of it, and names the event's
// thread.
func (d *decoder) start(e *event.Event, lib *library) *traced {
	p := d.process(e.PID)
	name, ok := p.names[e.TID]
	if !ok {
		if len(p.names) >= maxNames {
			clear(p.names) // threads come and go
		}
		if name = host.ThreadName(e.PID, e.TID); name == "" {
			name = d.host.startOf(e.PID).Comm // it has ended
		}
		p.names[e.TID] = name
	}
	e.Comm = name
	if p.started {
		return p
	}
	p.started = true
	start := d.host.startOf(e.PID)
	start.TimeNs = e.TimeNs
	p.names[e.PID] = start.Comm
	start.AttachedLate = e.AttachedLate || d.host.lateOf(e.PID) != nil
	if lib != nil {
		start.Library, start.Release = lib.Path, lib.Release
	}
	d.emit(start)
	return p
}

func (d *decoder) alloc(e event.Event, r *bpf.KernelBufferRecord) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown("library not known")
		return
	}
	p := d.start(&e, lib)
	if late := d.host.lateOf(e.PID); late != nil && e.TimeNs < late.sinceNs {
		return
	}
	e.Kind = event.Alloc
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.Object, e.BufferID, e.Allocator = r.Object, r.UniqueId, r.Allocator
	hooked := lib.Fill(&e, r.Window[:])
	if hooked || e.SizeBytes == 0 || int(e.Region) >= event.BankedRegions {
		return
	}
	d.place(&e, p, r.Device, r.Allocator, r.Request)
	p.live[r.Object] = liveBuffer{r.UniqueId, r.Allocator, 0}
	d.emit(e)
}

// chips are those of a device, which was reported before anything that is on it.
func (d *decoder) chips(p *traced, address uint64) []int {
	dev := p.devices[address]
	if dev == nil {
		d.unknown("device not known")
		return nil
	}
	return dev.chips
}

// place sets the chips that a buffer is on, and what it takes of their banks.
func (d *decoder) place(e *event.Event, p *traced, dev, alloc uint64, r bpf.KernelShardRequest) {
	e.Devices = d.chips(p, dev)
	a := p.allocators[alloc]
	if a == nil {
		d.unknown("allocator not known")
		return
	}
	if e.Layout.Sharded() && r.Shards == 0 {
		d.unknown("shards not seen")
		return
	}
	b := &a.banks[e.Region]
	if e.Kind == event.AllocFailed {
		e.Banks, e.BytesPerBank = b.RequestedPerBank(e.SizeBytes, e.PageSizeBytes, r)
	} else {
		e.Banks, e.BytesPerBank = b.AllocatedPerBank(e.SizeBytes, e.PageSizeBytes, r)
	}
}

func (d *decoder) free(e event.Event, r *bpf.KernelFreeRecord) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown("library not known")
		return
	}
	e.Kind, e.Reason = event.Free, event.ReasonExplicit
	if late := d.host.lateOf(e.PID); late != nil {
		late.free(r.Object)
	}
	p := d.processes[e.PID]
	if p == nil {
		return // a forked child frees what it inherited
	}
	b, known := p.live[r.Object]
	if !known {
		return // allocated before ttmem came, a view, or given back when its device was closed
	}
	d.start(&e, lib)
	delete(p.live, r.Object)
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.Object, e.BufferID, e.Allocator = r.Object, b.id, b.allocator
	e.BeforeAttach, e.TimeNs = b.before != 0, max(e.TimeNs, b.before)
	owns := lib.Owns(r.Window[:])
	if hooked := lib.Fill(&e, r.Window[:]); hooked || !owns || e.SizeBytes == 0 {
		return
	}
	if a := p.allocators[e.Allocator]; a != nil {
		e.Devices = a.device.chips
	}
	d.emit(e)
}

func (d *decoder) failed(e event.Event, r *bpf.KernelFailedRecord) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown("library not known")
		return
	}
	p := d.start(&e, lib)
	e.Kind, e.Message = event.AllocFailed, unix.ByteSliceToString(r.Message[:])
	e.Stack = p.stacks.Stack(r.H.Stack)
	if r.H.Flags == bpf.FailedAllocate {
		full := strings.Contains(e.Message, "Out of Memory")
		if r.Buffers[0].Object == 0 && !full {
			return // the function was on the stack by chance: no Buffer waits for memory
		}
		d.setRequested(&e, p, lib, r)
		if full {
			e.Reason = event.ReasonOutOfMemory
		}
		d.emit(e)
		return
	}
	e.Region, e.ProgramID, e.StaticKind = event.CB, r.ProgramId, event.CircularBuffer
	if r.H.Flags == bpf.FailedValidateDFBs {
		e.StaticKind = event.DataflowBuffer
	}
	if strings.Contains(e.Message, "clash") {
		e.Reason = event.ReasonStaticClash
	}
	e.Devices = d.chips(p, r.Device)
	d.emit(e)
}

// setRequested sets what memory was asked for: that of the Buffer on the stack that the
// message is of, the newest one where there are several, or only what the message says.
func (d *decoder) setRequested(e *event.Event, p *traced, lib *library, r *bpf.KernelFailedRecord) {
	requested, known := requestedIn(e.Message)
	found := -1
	var best event.Event
	for i := range r.Buffers {
		b := &r.Buffers[i]
		one := *e
		one.Object, one.BufferID = b.Object, b.UniqueId
		if b.Object == 0 {
			break
		}
		lib.Fill(&one, b.Window[:])
		if int(one.Region) >= event.BankedRegions || known && (one.SizeBytes != requested.SizeBytes || one.Region != requested.Region) {
			continue // an earlier one, or none at all
		}
		if found < 0 || known && one.BufferID > best.BufferID {
			found, best = i, one
		}
	}
	if found >= 0 {
		word := func(at uint32) uint64 { return binary.LittleEndian.Uint64(r.Buffers[found].Window[at:]) }
		*e = best
		e.Allocator = word(lib.Kernel.Allocator)
		d.place(e, p, word(lib.Kernel.Device), e.Allocator, r.Request)
		return
	}
	e.SizeBytes, e.Region, e.Banks, e.BytesPerBank = requested.SizeBytes, requested.Region, requested.Banks, requested.BytesPerBank
	if len(p.allocators) == 1 { // it can be of no other
		for at, a := range p.allocators {
			e.Allocator, e.Devices = at, a.device.chips
		}
	}
}

// outOfMemory is how the library says what memory was asked for.
var outOfMemory = regexp.MustCompile(`Not enough space to allocate (\d+) B (\w+) buffer across (\d+) banks, where each bank needs to store (\d+) B`)

// requestedIn is what a message says was asked for: SizeBytes, Region, Banks and
// BytesPerBank; false where it does not say.
func requestedIn(message string) (e event.Event, ok bool) {
	parts := outOfMemory.FindStringSubmatch(message)
	if parts == nil {
		return e, false
	}
	for r := range event.Region(event.BankedRegions) {
		if r.String() == parts[2] {
			e.Region, ok = r, true
		}
	}
	banks, _ := strconv.ParseUint(parts[3], 10, 32) // all are digits
	e.SizeBytes, _ = strconv.ParseUint(parts[1], 10, 64)
	e.BytesPerBank, _ = strconv.ParseUint(parts[4], 10, 64)
	e.Banks = uint32(banks)
	return e, ok
}

func (d *decoder) clear(e event.Event, r *bpf.KernelClearRecord) {
	if late := d.host.lateOf(e.PID); late != nil {
		late.cleared[r.Allocator] = true
	}
	p := d.processes[e.PID]
	if p == nil || p.allocators[r.Allocator] == nil {
		return // nothing was ever allocated with it
	}
	a := p.allocators[r.Allocator]
	d.start(&e, d.host.library(r.H.Library))
	e.Kind, e.Allocator = event.DeviceClose, r.Allocator
	e.TimeNs = max(e.TimeNs, p.lateNs) // not before what was found on it
	e.Devices, e.Mesh = a.device.chips, a.device.mesh
	delete(p.allocators, r.Allocator)
	maps.DeleteFunc(p.live, func(_ uint64, b liveBuffer) bool { return b.allocator == r.Allocator })
	d.emit(e)
}

func (d *decoder) device(e event.Event, r *bpf.KernelDeviceRecord) {
	lib := d.host.library(r.H.Library)
	p := d.start(&e, lib)
	dev := &device{mesh: r.H.Flags&bpf.DeviceMesh != 0}
	for _, chip := range r.Chips[:min(int(r.H.Count), len(r.Chips))] {
		if chip >= 0 { // others belong to other hosts
			dev.chips = append(dev.chips, int(chip))
		}
	}
	p.devices[r.Device] = dev
	if r.Allocator == 0 {
		return
	}
	a := &allocator{device: dev}
	for i, info := range r.Banks {
		a.banks[i] = heap.Bank(info)
	}
	known := p.allocators[r.Allocator]
	p.allocators[r.Allocator] = a
	if known != nil && r.H.Flags&bpf.DeviceReady == 0 && known.banks == a.banks && slices.Equal(known.device.chips, dev.chips) {
		return // it was found in the process's memory before
	}
	d.openDevice(e, r.Allocator, a, false)
}

// openDevice reports a device that has an allocator.
func (d *decoder) openDevice(e event.Event, address uint64, a *allocator, before bool) {
	e.Kind, e.BeforeAttach = event.DeviceOpen, before
	e.Devices, e.Allocator, e.Mesh = a.device.chips, address, a.device.mesh
	e.Board = host.BoardName(a.device.chips)
	for i, b := range a.banks {
		e.Capacities[i] = event.Capacity{Banks: b.Banks, BytesPerBank: b.BytesPerBank, Base: b.Base}
	}
	d.emit(e)
}

// processEnd ends a process, or what it was before an exec.
func (d *decoder) processEnd(e event.Event, r *bpf.KernelProcessRecord) {
	e.ExitStatus = int(r.ExitCode)
	execed := r.H.Kind == bpf.RecordExec
	if execed {
		e.ExitStatus = event.UnknownStatus // the process lives on as another program
	}
	d.endProcess(e, execed)
}

// endProcess forgets a process.
func (d *decoder) endProcess(e event.Event, execed bool) {
	p := d.processes[e.PID]
	delete(d.processes, e.PID)
	if p == nil {
		d.host.processEnded(e.PID, e.TimeNs, execed, nil)
		return
	}
	d.host.processEnded(e.PID, e.TimeNs, execed, p.stacks)
	if p.started {
		e.TID, e.Comm = e.PID, p.names[e.PID] // not those of the thread that ended last
		e.TimeNs = max(e.TimeNs, p.lateNs)
		e.Kind = event.ProcessExit
		d.emit(e)
	}
}

// sweep ends the processes, of which others are seen, that have ended and of whose end
// no record came: it was lost. What was there when it was last called has had its time
// to come.
func (d *decoder) sweep(timeNs uint64, seen []int) {
	var ended []int
	for _, pid := range slices.Concat(slices.Collect(maps.Keys(d.processes)), seen) {
		if !slices.Contains(ended, pid) && host.Ended(pid) {
			ended = append(ended, pid)
		}
	}
	for _, pid := range ended {
		if slices.Contains(d.ended, pid) {
			d.endProcess(event.Event{TimeNs: timeNs, PID: pid, ExitStatus: event.UnknownStatus}, false)
		}
	}
	d.ended = ended
}

// mark reports a call that is a mark; false where its name is not known.
func (d *decoder) mark(e event.Event, name uint32) bool {
	if int(name) >= len(d.markAt) {
		return false
	}
	e.Kind, e.Cause, e.UID = event.Mark, d.markAt[name], d.host.startOf(e.PID).UID
	d.emit(e)
	return true
}
