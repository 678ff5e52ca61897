package heap

import "ttmem/tracer/event"

// dataflowBuffers reads a vector of CircularBufferAllocators. Each has a range of cores and
// the regions allocated there; adjacent ones are merged into one.
func (o *objects) dataflowBuffers(h programHeader) (list []Static) {
	if h.allocators.begin == h.allocators.end || !o.knows("CircularBufferAllocator.next", "CircularBufferAllocator.l1_regions") {
		return nil
	}
	buffers, known := o.dataflowSizes(h.dfbs)
	next := uint64(o.fields["CircularBufferAllocator.next"][0])
	if _, ok := elements(h.allocators.begin, h.allocators.end, next, maxProgramRanges); !ok {
		o.invalid()
	}
	for at := h.allocators.begin; at < h.allocators.end && o.err == nil; at += next {
		cores := o.coreRanges(span{at, at + rangeBytes})
		var regions []span
		for _, words := range o.words(o.span(at, "CircularBufferAllocator.l1_regions"), 2, maxProgramRanges) {
			region := span{words[0], words[1]}
			if region.end < region.begin || region.end > maxL1 {
				o.invalid()
			}
			if region.begin != region.end { // the first may only mark the beginning of L1
				regions = append(regions, region)
			}
		}
		if o.err != nil {
			return nil
		}
		var scratchpads span
		if known {
			regions, scratchpads = divide(regions, sizesOn(cores[0], buffers))
		}
		add := func(s span, kind event.StaticKind) {
			list = append(list, Static{Address: s.begin, Bytes: s.end - s.begin, Cores: cores, Kind: kind})
		}
		for _, region := range regions {
			add(region, event.DataflowBuffer)
		}
		if scratchpads.begin != scratchpads.end {
			add(scratchpads, event.Scratchpad)
		}
	}
	return list
}

// dataflowBuffer is the memory that a dataflow buffer takes on each of its cores.
type dataflowBuffer struct {
	bytes uint64
	cores []event.CoreRange
}

// dataflowSizes reads a vector of shared pointers to dataflow buffers, if their layout is
// known.
func (o *objects) dataflowSizes(dfbs span) (list []dataflowBuffer, known bool) {
	const a, b, ranges = "DataflowBuffer.total_size(a)", "DataflowBuffer.total_size(b)", "DataflowBuffer.core_ranges"
	if !o.knows("ProgramImpl.dataflow_buffers_", a, b, ranges) {
		return nil, false
	}
	for _, dfb := range o.shared(dfbs) {
		// the library multiplies 32 bits too
		bytes := uint64(uint32(o.u32(dfb, a)) * uint32(o.u32(dfb, b)))
		list = append(list, dataflowBuffer{bytes, o.coreRanges(o.span(dfb, ranges))})
	}
	return list, true
}

// sizesOn are the sizes of the buffers that have a part of a range of cores, in order.
func sizesOn(cores event.CoreRange, buffers []dataflowBuffer) (sizes []uint64) {
	for _, b := range buffers {
		for _, r := range b.cores {
			if b.bytes != 0 && r.X0 <= cores.X1 && cores.X0 <= r.X1 && r.Y0 <= cores.Y1 && cores.Y0 <= r.Y1 {
				sizes = append(sizes, b.bytes)
				break
			}
		}
	}
	return sizes
}

// divide splits the regions of a range of cores into buffers of these sizes, which are
// placed in this order, and the kernels' scratchpads behind them. The regions stay whole if
// the buffers do not fit, because some share the place of another or lie in a tensor.
//
// The library merges adjacent regions, so that they show neither where one buffer ends nor
// where scratchpads begin. It stores the address of a buffer by core, in the buffer's groups of
// cores, but exports no accessor of these from whose code a layout could be derived. The layout
// of the sizes comes from the code that multiplies them.
func divide(regions []span, sizes []uint64) (buffers []span, scratchpads span) {
	for i, region := range regions {
		for at := region.begin; at < region.end; {
			switch {
			case len(sizes) == 0 && i == len(regions)-1:
				return buffers, span{at, region.end}
			case len(sizes) == 0 || at+sizes[0] > region.end:
				return regions, span{}
			}
			buffers = append(buffers, span{at, at + sizes[0]})
			at, sizes = at+sizes[0], sizes[1:]
		}
	}
	if len(sizes) > 0 {
		return regions, span{}
	}
	return buffers, span{}
}
