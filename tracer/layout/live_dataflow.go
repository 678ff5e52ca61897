package layout

import "golang.org/x/arch/x86/x86asm"

// The functions that show where a program keeps its dataflow buffers and its kernels'
// scratchpads: a CircularBufferAllocator has the regions allocated on one range of cores,
// which is its first field.
const (
	invalidateDFBs = "detail::ProgramImpl::invalidate_dataflow_buffer_allocation"
	validateDFBs   = "detail::ProgramImpl::validate_dataflow_buffer_region"
	allocatorMark  = "detail::ProgramImpl::CircularBufferAllocator::mark_address"
)

// liveDFBs finds the regions of L1 that a program's dataflow buffers and scratchpads occupy on each
// range of cores.
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
}

// cleared finds the vector in the elements of an array that a loop clears: `mov rdx,
// [rax+begin]; cmp [rax+end], rdx; je; mov [rax+end], rdx`.
func cleared(f *flow) (Chain, error) {
	for i := 0; i+3 < len(f.steps); i++ {
		load, compare, store := f.steps[i], f.steps[i+1], f.steps[i+3]
		begin, n, ok := load.Mem()
		if !ok || n != 1 || load.Op != x86asm.MOV || load.MemBytes != 8 || begin.Index != 0 {
			continue
		}
		end, _, ok := compare.Mem()
		set, at, stores := store.Mem()
		if ok && stores && at == 0 && compare.Op == x86asm.CMP && store.Op == x86asm.MOV && store.Args[1] == load.Args[0] &&
			end == set && end.Base == begin.Base && end.Disp == begin.Disp+8 {
			return Chain{int32(begin.Disp)}, nil
		}
	}
	return nil, errShape
}

// advances finds the size of the elements whose vectors a loop clears.
func advances(f *flow) (Chain, error) {
	for _, s := range f.steps {
		m, n, ok := s.Mem()
		if !ok || n != 0 || s.Op != x86asm.MOV || s.MemBytes != 8 || m.Index != 0 {
			continue
		}
		if bytes := f.advance(m.Base); bytes != 0 {
			return Chain{int32(bytes)}, nil
		}
	}
	return nil, errShape
}
