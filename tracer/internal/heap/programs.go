package heap

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// Program is the memory of a ProgramImpl, as the events of its compilation would report it.
type Program struct {
	ID      uint64
	Statics []Static
	// BinaryBytes are the bytes in DRAM, TextBytes those in the L1 of each core.
	BinaryBytes, TextBytes uint64
}

// RuntimeProgram is a program of a chip's command queue or fabric.
type RuntimeProgram struct {
	ID   uint64
	Chip int
	Kind event.KernelKind
	// TextBytes are the bytes of its kernels in the L1 of each of their cores.
	TextBytes uint64
}

// maxQueuePrograms rejects implausible command queues.
const maxQueuePrograms = 64

// runtimePrograms reads the programs of the chips of a device that are not a user's. Those of a chip
// that is being opened or closed may be incomplete.
func (r *reader) runtimePrograms(d *Device) (list []RuntimeProgram, err error) {
	const queue, fabric = "Device.command_queue_programs_", "Device.fabric_program_"
	o := r.objects()
	if !o.knows(queue, fabric, "Program.impl", "ProgramImpl.id", kernelTextSize) {
		return nil, nil
	}
	devices := []uint64{d.Address}
	if d.Mesh {
		devices = r.localDevices(o, d.Address)
	}
	for _, device := range devices {
		chip := o.chip(device)
		add := func(program uint64, kind event.KernelKind) {
			impl := o.u64(program, "Program.impl")
			list = append(list, RuntimeProgram{o.u64(impl, "ProgramImpl.id"), chip, kind, o.largestText(impl)})
		}
		for _, words := range o.words(o.span(device, queue), 1, maxQueuePrograms) {
			add(words[0], event.QueueKernels)
		}
		if program := o.u64(device, fabric); program != 0 {
			add(program, event.FabricKernels)
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	return list, nil
}

// maxCoreTypes rejects implausible programs.
const maxCoreTypes = 16

// kernelTextSize is in each element of a vector, the size of which it ends.
const kernelTextSize = "ProgramImpl.kernel_text_size"

// largestText is the largest text of a program on a core of any type.
func (o *objects) largestText(impl uint64) (most uint64) {
	c := o.fields[kernelTextSize]
	if len(c) != 2 {
		return 0
	}
	bytes := uint64(c[1]) + 4
	raw := o.elements(o.spanAt(impl+uint64(c[0])), bytes, maxCoreTypes)
	for element := range slices.Chunk(raw, int(bytes)) {
		most = max(most, uint64(binary.LittleEndian.Uint32(element[c[1]:])))
	}
	if most > maxL1 {
		o.invalid()
	}
	return most
}

// Static is a range of L1 on some cores.
type Static struct {
	Address, Bytes uint64
	Cores          []event.CoreRange
	Kind           event.StaticKind
	Global         bool
}

// errProgramChanged means that a program was destroyed, or got new addresses, while it was read.
// Events report its new state.
var errProgramChanged = errors.New("the program changed while it was read")

// programHeader is the part that changes when a program's buffers are placed again.
type programHeader struct {
	id                     uint64
	cbsNeeded, dfbsNeeded  bool
	cbs, allocators        span
	binaryBytes, textBytes uint64
}

// maxProgramTries is how often a changing program is read.
const maxProgramTries = 3

// ReadProgram reads the memory of the ProgramImpl at an address in a process. It leaves out fields
// that the layout lacks; the layout's Missing names them.
func (l *Library) ReadProgram(ctx context.Context, process host.ReadableProcess, impl uint64) (p Program, err error) {
	for range maxProgramTries {
		if p, err = l.readProgramOnce(process.Memory(ctx), impl); !errors.Is(err, errProgramChanged) {
			break
		}
	}
	if err != nil {
		return Program{}, fmt.Errorf("program at %#x of process %d: %w", impl, process.PID, err)
	}
	return p, nil
}

func (l *Library) readProgramOnce(memory host.Memory, impl uint64) (Program, error) {
	o := &objects{memory: &host.Bounded{Memory: memory, Left: programBudget, Over: errTooMuch}, fields: l.Layout.Fields}
	h := o.header(impl)
	p := Program{ID: h.id, BinaryBytes: h.binaryBytes, TextBytes: h.textBytes}
	if !h.cbsNeeded {
		p.Statics = o.circularBuffers(h.cbs)
	}
	if !h.dfbsNeeded {
		p.Statics = append(p.Statics, o.dataflowBuffers(h)...)
	}
	again := &objects{memory: o.memory, fields: o.fields}
	if now := again.header(impl); now != h && again.err == nil {
		return p, errProgramChanged
	}
	return p, cmp.Or(o.err, again.err)
}

func (o *objects) header(impl uint64) (h programHeader) {
	const id = "ProgramImpl.id"
	if !o.knows(id) {
		o.err = fmt.Errorf("%s is not known", id)
		return h
	}
	h.id = o.u64(impl, id)
	const cbsNeeded = "ProgramImpl.local_circular_buffer_allocation_needed_"
	if o.knows("ProgramImpl.circular_buffers_", cbsNeeded) {
		h.cbsNeeded, h.cbs = o.flag(impl, cbsNeeded), o.span(impl, "ProgramImpl.circular_buffers_")
	}
	const dfbsNeeded = "ProgramImpl.local_dataflow_buffer_allocation_needed_"
	if o.knows("ProgramImpl.dfb_allocators_", dfbsNeeded) {
		h.dfbsNeeded, h.allocators = o.flag(impl, dfbsNeeded), o.span(impl, "ProgramImpl.dfb_allocators_")
	}
	if o.knows("ProgramImpl.binary_data(begin)") {
		binaries := o.span(impl, "ProgramImpl.binary_data(begin)")
		h.binaryBytes = binaries.end - binaries.begin
	}
	if c := o.fields[kernelTextSize]; len(c) == 2 {
		// a vector of ProgramConfigs, the first of which is for Tensix cores
		if configs := o.spanAt(impl + uint64(c[0])); configs.begin != configs.end {
			h.textBytes = o.u32(impl, kernelTextSize)
		}
		if h.textBytes > maxL1 {
			o.invalid()
		}
	}
	return h
}

// circularBuffers reads a vector of shared pointers to circular buffers.
func (o *objects) circularBuffers(cbs span) (list []Static) {
	if !o.knows("CircularBuffer.core_ranges", "CircularBuffer.size", "CircularBuffer.is_global",
		"CircularBuffer.has_local_address", "CircularBuffer.local_address") {
		return nil
	}
	for _, shared := range o.words(cbs, 2, maxProgramCBs) { // the pointer, and one to its counts
		cb := shared[0]
		s := Static{
			Bytes:  o.u32(cb, "CircularBuffer.size"),
			Kind:   event.CircularBuffer,
			Global: o.flag(cb, "CircularBuffer.is_global"),
		}
		switch {
		case s.Global && o.knows("CircularBuffer.global_address"):
			s.Address = o.u32(cb, "CircularBuffer.global_address")
		case !s.Global && o.flag(cb, "CircularBuffer.has_local_address"):
			s.Address = o.u32(cb, "CircularBuffer.local_address")
		default:
			continue
		}
		s.Cores = o.coreRanges(o.span(cb, "CircularBuffer.core_ranges"))
		list = append(list, s)
	}
	return list
}

// dataflowBuffers reads a vector of CircularBufferAllocators. Each has a range of cores and the
// regions of the dataflow buffers and scratchpads there. The library merges adjacent ones into one,
// and exports no function that shows where one ends: each region is reported as a dataflow buffer.
func (o *objects) dataflowBuffers(h programHeader) (list []Static) {
	if h.allocators.begin == h.allocators.end || !o.knows("CircularBufferAllocator.next", "CircularBufferAllocator.l1_regions") {
		return nil
	}
	next := uint64(o.fields["CircularBufferAllocator.next"][0])
	if _, ok := elements(h.allocators.begin, h.allocators.end, next, maxProgramRanges); !ok {
		o.invalid()
	}
	for at := h.allocators.begin; at < h.allocators.end && o.err == nil; at += next {
		cores := o.coreRanges(span{at, at + rangeBytes})
		for _, words := range o.words(o.span(at, "CircularBufferAllocator.l1_regions"), 2, maxProgramRanges) {
			begin, end := words[0], words[1]
			if end < begin || end > maxL1 {
				o.invalid()
			}
			if begin != end { // the first may only mark the beginning of L1
				list = append(list, Static{Address: begin, Bytes: end - begin, Cores: cores, Kind: event.DataflowBuffer})
			}
		}
	}
	if o.err != nil {
		return nil
	}
	return list
}
