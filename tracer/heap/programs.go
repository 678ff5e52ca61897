package heap

import (
	"cmp"
	"errors"
	"fmt"

	"ttmem/tracer/event"
)

// Program is the memory of a ProgramImpl, as the events of its compilation would report it.
type Program struct {
	ID      uint64
	Statics []Static
	// BinaryBytes are in DRAM, TextBytes in the L1 of each core.
	BinaryBytes, TextBytes uint64
}

// Static is a range of L1 on some cores.
type Static struct {
	Address, Bytes uint64
	Cores          []event.CoreRange
	Kind           event.StaticKind
	Global         bool
}

var (
	// errProgramChanged means that a program was placed again, or destroyed, while it was
	// read. Events report its new state.
	errProgramChanged = errors.New("the program changed while it was read")
	errNotAProgram    = errors.New("not a valid program")
)

// programHeader is the part that changes when a program's buffers are placed again.
type programHeader struct {
	id                     uint64
	cbsNeeded, dfbsNeeded  bool
	cbs, dfbs, allocators  span
	binaryBytes, textBytes uint64
}

// maxProgramTries is how often a changing program is read.
const maxProgramTries = 3

// ReadProgram reads the memory of the ProgramImpl at an address in a process. Fields that
// the layout does not know are left out: the layout's Missing names them.
func (l *Library) ReadProgram(pid int, impl uint64) (p Program, err error) {
	for range maxProgramTries {
		if p, err = l.readProgramOnce(pid, impl); !errors.Is(err, errProgramChanged) {
			break
		}
	}
	if err != nil {
		return Program{}, fmt.Errorf("program at %#x of process %d: %w", impl, pid, err)
	}
	return p, nil
}

func (l *Library) readProgramOnce(pid int, impl uint64) (Program, error) {
	r := &programReader{memory: &processMemory{pid: pid}, fields: l.Layout.Fields}
	h := r.header(impl)
	p := Program{ID: h.id, BinaryBytes: h.binaryBytes, TextBytes: h.textBytes}
	if !h.cbsNeeded {
		p.Statics = r.circularBuffers(h.cbs)
	}
	if !h.dfbsNeeded {
		p.Statics = append(p.Statics, r.dataflowBuffers(h)...)
	}
	again := &programReader{memory: r.memory, fields: l.Layout.Fields}
	if now := again.header(impl); now != h && again.err == nil {
		return p, errProgramChanged
	}
	return p, cmp.Or(r.err, again.err)
}

func (r *programReader) header(impl uint64) (h programHeader) {
	const id = "ProgramImpl.id"
	if !r.knows(id) {
		r.err = fmt.Errorf("%s is not known", id)
		return h
	}
	h.id = r.u64(impl, id)
	const cbsNeeded = "ProgramImpl.local_circular_buffer_allocation_needed_"
	if r.knows("ProgramImpl.circular_buffers_", cbsNeeded) {
		h.cbsNeeded, h.cbs = r.flag(impl, cbsNeeded), r.span(impl, "ProgramImpl.circular_buffers_")
	}
	const dfbsNeeded = "ProgramImpl.local_dataflow_buffer_allocation_needed_"
	if r.knows("ProgramImpl.dfb_allocators_", dfbsNeeded) {
		h.dfbsNeeded, h.allocators = r.flag(impl, dfbsNeeded), r.span(impl, "ProgramImpl.dfb_allocators_")
	}
	if r.knows("ProgramImpl.dataflow_buffers_") {
		h.dfbs = r.span(impl, "ProgramImpl.dataflow_buffers_")
	}
	if r.knows("ProgramImpl.binary_data(begin)") {
		binaries := r.span(impl, "ProgramImpl.binary_data(begin)")
		h.binaryBytes = binaries.end - binaries.begin
	}
	const text = "ProgramImpl.kernel_text_size"
	if c := r.fields[text]; len(c) == 2 {
		// a vector of ProgramConfigs, the first of which is for Tensix cores
		if configs := r.spanAt(impl + uint64(c[0])); configs.begin != configs.end {
			h.textBytes = r.u32(impl, text)
		}
		if h.textBytes > maxL1 {
			r.fail()
		}
	}
	return h
}

// circularBuffers reads a vector of shared pointers to circular buffers.
func (r *programReader) circularBuffers(cbs span) (list []Static) {
	if !r.knows("CircularBuffer.core_ranges", "CircularBuffer.size", "CircularBuffer.is_global",
		"CircularBuffer.has_local_address", "CircularBuffer.local_address") {
		return nil
	}
	for _, cb := range r.shared(cbs, maxProgramCBs) {
		s := Static{
			Bytes:  r.u32(cb, "CircularBuffer.size"),
			Kind:   event.CircularBuffer,
			Global: r.flag(cb, "CircularBuffer.is_global"),
		}
		switch {
		case s.Global && r.knows("CircularBuffer.global_address"):
			s.Address = r.u32(cb, "CircularBuffer.global_address")
		case !s.Global && r.flag(cb, "CircularBuffer.has_local_address"):
			s.Address = r.u32(cb, "CircularBuffer.local_address")
		default:
			continue
		}
		s.Cores = r.coreRanges(r.span(cb, "CircularBuffer.core_ranges"))
		list = append(list, s)
	}
	return list
}
