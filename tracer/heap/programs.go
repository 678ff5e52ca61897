package heap

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ttmem/tracer/event"
)

// Program is what a ProgramImpl holds: what the events of its compilation would
// have told.
type Program struct {
	ID      uint64
	Statics []Static
	// BinaryBytes are in DRAM, textBytes in the L1 of each core.
	BinaryBytes, TextBytes uint64
}

// Static is a place in the L1 of some cores.
type Static struct {
	Address, Bytes uint64
	Cores          []event.CoreRange
	Kind           event.StaticKind
	Global         bool
}

var (
	// errProgramChanged means that a program was placed anew, or destroyed, while it
	// was read. Events tell of what it has become.
	errProgramChanged = errors.New("the program changed while it was read")
	errNotAProgram    = errors.New("what is there makes no sense as a program")
)

// programHeader is what changes when a program's buffers are placed anew.
type programHeader struct {
	id                     uint64
	cbsNeeded, dfbsNeeded  bool
	cbs, dfbs, allocators  span
	binaryBytes, textBytes uint64
}

// maxProgramTries is how often a program is read that changes meanwhile.
const maxProgramTries = 3

// ReadProgram reads what the ProgramImpl at an address in a process holds. What the
// layout does not know is left out: it is named in the layout's Missing.
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
	r := &programReader{pid: pid, fields: l.Layout.Fields}
	h := r.header(impl)
	p := Program{ID: h.id, BinaryBytes: h.binaryBytes, TextBytes: h.textBytes}
	if !h.cbsNeeded {
		p.Statics = r.circularBuffers(h.cbs)
	}
	if !h.dfbsNeeded {
		p.Statics = append(p.Statics, r.dataflowBuffers(h)...)
	}
	again := &programReader{pid: pid, fields: l.Layout.Fields}
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

// dataflowBuffers reads a vector of CircularBufferAllocators, each of which has a
// range of cores and the regions that were given away there, one for all that lie
// side by side.
func (r *programReader) dataflowBuffers(h programHeader) (list []Static) {
	if h.allocators.begin == h.allocators.end || !r.knows("CircularBufferAllocator.next", "CircularBufferAllocator.l1_regions") {
		return nil
	}
	buffers, known := r.dataflowSizes(h.dfbs)
	next := uint64(r.fields["CircularBufferAllocator.next"][0])
	n := (h.allocators.end - h.allocators.begin) / next
	if n > maxProgramRanges || n*next != h.allocators.end-h.allocators.begin {
		r.fail()
		return nil
	}
	for at := h.allocators.begin; at < h.allocators.end && r.err == nil; at += next {
		cores := r.coreRanges(span{at, at + coreRangeBytes})
		var regions []span
		for _, words := range r.words(r.span(at, "CircularBufferAllocator.l1_regions"), 2, maxProgramRanges) {
			region := span{words[0], words[1]}
			if region.end < region.begin || region.end > maxL1 {
				r.fail()
				return nil
			}
			if region.begin != region.end { // the first may be the mark of where L1 begins
				regions = append(regions, region)
			}
		}
		if r.err != nil {
			return nil
		}
		parts, rest := regions, span{}
		if known {
			parts, rest = divide(regions, cores[0], buffers)
		}
		add := func(s span, kind event.StaticKind) {
			list = append(list, Static{Address: s.begin, Bytes: s.end - s.begin, Cores: cores, Kind: kind})
		}
		for _, part := range parts {
			add(part, event.DataflowBuffer)
		}
		if rest.begin != rest.end {
			add(rest, event.Scratchpad)
		}
	}
	return list
}

// dataflowBuffer is a dataflow buffer: what it takes of each of its cores.
type dataflowBuffer struct {
	bytes uint64
	cores []event.CoreRange
}

// dataflowSizes reads a vector of shared pointers to dataflow buffers, where it is
// known what they are like.
func (r *programReader) dataflowSizes(dfbs span) (list []dataflowBuffer, known bool) {
	const a, b, ranges = "DataflowBuffer.total_size(a)", "DataflowBuffer.total_size(b)", "DataflowBuffer.core_ranges"
	if !r.knows("ProgramImpl.dataflow_buffers_", a, b, ranges) {
		return nil, false
	}
	for _, dfb := range r.shared(dfbs, maxProgramCBs) {
		// the library multiplies 32 bits too
		bytes := uint64(uint32(r.u32(dfb, a)) * uint32(r.u32(dfb, b)))
		list = append(list, dataflowBuffer{bytes, r.coreRanges(r.span(dfb, ranges))})
	}
	return list, true
}

// maxDivisions bounds how many ways to divide regions are tried.
const maxDivisions = 1 << 12

// divide gives the regions of a range of cores to the buffers that take them, which
// lie there in their order; some may share the place of another, or lie in a tensor.
// What is left behind all of them is the kernels' scratchpads. Where there is no way
// to divide the regions, or more than one, they stay whole: as many bytes, at the
// same place, in fewer parts.
func divide(regions []span, cores event.CoreRange, buffers []dataflowBuffer) (parts []span, rest span) {
	var sizes []uint64
	for _, b := range buffers {
		if b.bytes != 0 && b.touches(cores) {
			sizes = append(sizes, b.bytes)
		}
	}
	var found []span
	several, tries := false, 0
	var try func(parts, regions []span, sizes []uint64)
	try = func(parts, regions []span, sizes []uint64) {
		if tries++; tries > maxDivisions || several {
			return
		}
		if len(regions) == 0 {
			several = found != nil && !slices.Equal(found, parts)
			found = slices.Clone(parts)
			return
		}
		for i, bytes := range sizes {
			at := regions[0].begin
			switch rest := regions[0].end - at; {
			case bytes == rest:
				try(append(parts, span{at, at + bytes}), regions[1:], sizes[i+1:])
			case bytes < rest:
				left := slices.Clone(regions)
				left[0].begin += bytes
				try(append(parts, span{at, at + bytes}), left, sizes[i+1:])
			}
		}
	}
	try(nil, regions, sizes)
	switch {
	case several || tries > maxDivisions:
		return regions, rest
	case found != nil:
		return found, rest
	}
	// each has its place, and something is behind the last one
	for i, region := range regions {
		for at := region.begin; at < region.end; at = parts[len(parts)-1].end {
			if len(sizes) == 0 && i == len(regions)-1 {
				return parts, span{at, region.end}
			}
			if len(sizes) == 0 || at+sizes[0] > region.end {
				return regions, rest
			}
			parts, sizes = append(parts, span{at, at + sizes[0]}), sizes[1:]
		}
	}
	return regions, rest
}

func (b *dataflowBuffer) touches(c event.CoreRange) bool {
	for _, r := range b.cores {
		if r.X0 <= c.X1 && c.X0 <= r.X1 && r.Y0 <= c.Y1 && c.Y0 <= r.Y1 {
			return true
		}
	}
	return false
}
