package heap

import (
	"slices"

	"ttmem/tracer/event"
)

// dataflowBuffers reads a vector of CircularBufferAllocators. Each has a range of cores and
// the regions allocated there; adjacent ones are merged into one.
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
		cores := r.coreRanges(span{at, at + rangeBytes})
		var regions []span
		for _, words := range r.words(r.span(at, "CircularBufferAllocator.l1_regions"), 2, maxProgramRanges) {
			region := span{words[0], words[1]}
			if region.end < region.begin || region.end > maxL1 {
				r.fail()
				return nil
			}
			if region.begin != region.end { // the first may only mark the beginning of L1
				regions = append(regions, region)
			}
		}
		if r.err != nil {
			return nil
		}
		parts, rest := regions, span{}
		if known {
			parts, rest = divide(regions, sizesOn(cores[0], buffers))
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

// dataflowBuffer is the memory that a dataflow buffer takes on each of its cores.
type dataflowBuffer struct {
	bytes uint64
	cores []event.CoreRange
}

// dataflowSizes reads a vector of shared pointers to dataflow buffers, if their layout is
// known.
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

// sizesOn are the sizes of the buffers that have a part of a range of cores, in order.
func sizesOn(cores event.CoreRange, buffers []dataflowBuffer) (sizes []uint64) {
	for _, b := range buffers {
		if b.bytes != 0 && b.touches(cores) {
			sizes = append(sizes, b.bytes)
		}
	}
	return sizes
}

func (b *dataflowBuffer) touches(c event.CoreRange) bool {
	for _, r := range b.cores {
		if r.X0 <= c.X1 && c.X0 <= r.X1 && r.Y0 <= c.Y1 && c.Y0 <= r.Y1 {
			return true
		}
	}
	return false
}

// divide splits the regions of a range of cores into buffers of these sizes, which are
// placed in this order; some may share the place of another, or lie in a tensor. The rest
// behind them is the kernels' scratchpads. If there is no such split, or more than one, the
// regions stay whole: the same bytes at the same place, in fewer parts.
func divide(regions []span, sizes []uint64) (parts []span, rest span) {
	var f filling
	f.try(regions, sizes, nil)
	switch {
	case f.ambiguous:
		return regions, span{}
	case f.found:
		return f.parts, span{}
	}
	if parts, rest, ok := fillAll(regions, sizes); ok {
		return parts, rest
	}
	return regions, span{}
}

// filling searches for the only way to fill regions with some of the sizes, in order.
type filling struct {
	parts []span
	found bool
	// ambiguous: there is more than one way, or the search was cut off
	ambiguous bool
	steps     int
}

// maxFillingSteps bounds a search.
const maxFillingSteps = 1 << 12

// try continues after parts, which fill what lies before regions.
func (f *filling) try(regions []span, sizes []uint64, parts []span) {
	if f.steps++; f.steps > maxFillingSteps {
		f.ambiguous = true
	}
	if f.ambiguous {
		return
	}
	if len(regions) == 0 {
		f.ambiguous = f.found && !slices.Equal(f.parts, parts)
		f.parts, f.found = slices.Clone(parts), true
		return
	}
	first := regions[0]
	for i, bytes := range sizes {
		part := span{first.begin, first.begin + bytes}
		switch {
		case part.end == first.end:
			f.try(regions[1:], sizes[i+1:], append(parts, part))
		case part.end < first.end:
			left := slices.Clone(regions)
			left[0].begin = part.end
			f.try(left, sizes[i+1:], append(parts, part))
		}
	}
}

// fillAll fills regions with all the sizes; rest is what lies behind the last part.
func fillAll(regions []span, sizes []uint64) (parts []span, rest span, ok bool) {
	for i, region := range regions {
		for at := region.begin; at < region.end; {
			switch {
			case len(sizes) == 0:
				return parts, span{at, region.end}, i == len(regions)-1
			case at+sizes[0] > region.end:
				return nil, span{}, false
			}
			parts = append(parts, span{at, at + sizes[0]})
			at, sizes = at+sizes[0], sizes[1:]
		}
	}
	return nil, span{}, false
}
