package layout

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// The functions that show where a program keeps its dataflow buffers and its kernels'
// scratchpads: a CircularBufferAllocator has the regions allocated on one range of cores,
// which is its first field.
const (
	invalidateDFBs    = "detail::ProgramImpl::invalidate_dataflow_buffer_allocation"
	validateDFBs      = "detail::ProgramImpl::validate_dataflow_buffer_region"
	allocatorMark     = "detail::ProgramImpl::CircularBufferAllocator::mark_address"
	markAddressCallee = "23CircularBufferAllocator12mark_address"
	coreRangesCallee  = "12CoreRangeSet6ranges"
)

// liveDFBs finds the dataflow buffers of a program: the regions allocated to them and to
// scratchpads on each range of cores, and the size of each buffer.
func (d *deriver) liveDFBs() {
	d.field("ProgramImpl.dfb_allocators_", 8, from(firstVector, invalidateDFBs), from(firstVector, validateDFBs))
	d.field("ProgramImpl.local_dataflow_buffer_allocation_needed_", 1,
		from(flagged, invalidateDFBs),
		from(first(compares(1, 1)), dataflowBuffers))
	d.field("CircularBufferAllocator.l1_regions", 8,
		from(firstVector, allocatorMark),
		from(cleared, invalidateDFBs))
	// the size of an element, in the two loops that clear them
	d.field("CircularBufferAllocator.next", 8, from(advances, invalidateDFBs), from(advances, invalidateCBs))

	d.field("ProgramImpl.dataflow_buffers_", 8, from(vectorOfResult, "detail::ProgramImpl::dataflow_buffers const"), from(firstVector, dataflowBuffers))
	for n, name := range []string{"DataflowBuffer.total_size(a)", "DataflowBuffer.total_size(b)"} {
		d.field(name, 4, from(factor(n), dataflowBuffers))
	}
	d.field("DataflowBuffer.core_ranges", 8, from(elementRanges, dataflowBuffers))
}

// cleared finds the vector in the elements of an array that a loop clears: `mov rdx,
// [rax+begin]; cmp [rax+end], rdx; je; mov [rax+end], rdx`.
func cleared(f *flow) (Chain, error) {
	for i := 0; i+3 < len(f.steps); i++ {
		load, compare, store := &f.steps[i], &f.steps[i+1], &f.steps[i+3]
		begin, n, ok := load.mem()
		if !ok || n != 1 || load.op != x86asm.MOV || load.bytes != 8 || begin.Index != 0 {
			continue
		}
		end, _, ok := compare.mem()
		set, at, stores := store.mem()
		if ok && stores && at == 0 && compare.op == x86asm.CMP && store.op == x86asm.MOV && store.args[1] == load.args[0] &&
			end == set && end.Base == begin.Base && end.Disp == begin.Disp+8 {
			return Chain{int32(begin.Disp)}, nil
		}
	}
	return nil, errShape
}

// advances finds the size of the elements whose vectors a loop clears.
func advances(f *flow) (Chain, error) {
	for i := range f.steps {
		s := &f.steps[i]
		m, n, ok := s.mem()
		if !ok || n != 0 || s.op != x86asm.MOV || s.bytes != 8 || m.Index != 0 {
			continue
		}
		if bytes := f.advance(m.Base); bytes != 0 {
			return Chain{int32(bytes)}, nil
		}
	}
	return nil, errShape
}

// factor finds one of the two fields of a dataflow buffer whose product is its size: `mov
// edx, [r+a]; imul edx, [r+b]` before the call of mark_address.
func factor(n int) finder {
	return func(f *flow) (Chain, error) {
		for i := range f.steps {
			if f.steps[i].op != x86asm.CALL || !strings.Contains(f.callee(&f.steps[i]), markAddressCallee) {
				continue
			}
			for j := i - 1; j > 0 && j > i-maxLead; j-- {
				times, load := &f.steps[j], &f.steps[j-1]
				if !times.is(x86asm.IMUL, 4) || times.args[0] != x86asm.Arg(x86asm.EDX) {
					continue
				}
				b, _, isMem := times.mem()
				a, at, loads := load.mem()
				if isMem && loads && at == 1 && load.op == x86asm.MOV && load.args[0] == x86asm.Arg(x86asm.EDX) &&
					a.Base == b.Base && a.Index == 0 && b.Index == 0 {
					return Chain{int32([]x86asm.Mem{a, b}[n].Disp)}, nil
				}
			}
		}
		return nil, errShape
	}
}

// elementRanges finds the core ranges of a dataflow buffer: `mov rdi, [r]; add rdi, ranges;
// call CoreRangeSet::ranges`, where r iterates over the vector.
func elementRanges(f *flow) (Chain, error) {
	var found []Chain
	for i := 2; i < len(f.steps); i++ {
		s, add, load := &f.steps[i], &f.steps[i-1], &f.steps[i-2]
		m, _, ok := load.mem()
		n, isImm := add.args[1].(x86asm.Imm)
		if ok && m.Disp == 0 && m.Index == 0 && load.args[0] == x86asm.Arg(x86asm.RDI) &&
			isImm && add.op == x86asm.ADD && add.args[0] == x86asm.Arg(x86asm.RDI) &&
			s.op == x86asm.CALL && strings.Contains(f.callee(s), coreRangesCallee) && !contains(found, Chain{int32(n)}) {
			found = append(found, Chain{int32(n)})
		}
	}
	return only(found)
}
