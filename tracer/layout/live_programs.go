package layout

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize/x86"
)

// The functions that show where a program keeps its allocations in L1. Up to 0.65 a circular
// buffer is a CircularBuffer, from then on a CircularBufferImpl that a CircularBuffer points to.
// The fields belong to the object that a program's vector points to.
const (
	invalidateCBs = "detail::ProgramImpl::invalidate_circular_buffer_allocation"
	allocateCBs   = "detail::ProgramImpl::allocate_circular_buffers"
	cbImplAddress = "CircularBufferImpl::address const"
	cbAddress     = "CircularBuffer::address const"
)

// livePrograms finds the circular and dataflow buffers of a compiled program, and the
// memory of its kernels.
func (d *deriver) livePrograms() {
	d.liveCBs()
	if len(d.e.WithPrefix(mangle(dataflowBuffers))) > 0 {
		d.liveDFBs()
	}
	d.attempt(kernelTextSize, d.kernelText)
}

// liveCBs finds the circular buffers of a program.
func (d *deriver) liveCBs() {
	d.field("ProgramImpl.circular_buffers_", 8, from(vectorOfResult, "detail::ProgramImpl::circular_buffers const"))
	// true until allocate_circular_buffers has assigned their addresses
	d.field("ProgramImpl.local_circular_buffer_allocation_needed_", 1,
		from(flagged, invalidateCBs),
		from(first(compares(1, 1)), allocateCBs))
	d.field("CircularBuffer.core_ranges", 8,
		from(handedTo("12CoreRangeSet8contains"), "CircularBufferImpl::is_on_logical_core const", "CircularBuffer::is_on_logical_core const"),
		from(handedTo("12CoreRangeSet10intersects"), "CircularBufferImpl::is_on_logical_corerange const",
			"CircularBuffer::is_on_logical_corerange const"),
		from(inPointee(returned), "CircularBuffer::core_ranges const"))

	// address() returns the value of an optional, 4 bytes followed by a flag, or the
	// address of the L1 buffer that contains it
	has, ok := d.field("CircularBuffer.has_local_address", 1, from(single(comparesAny(1)), cbImplAddress, cbAddress))
	value := Chain{-1}
	if ok && len(has) == 1 {
		value[0] = has[0] - 4
	}
	d.field("CircularBuffer.local_address", 4, from(oneOfTwo(value, true), cbImplAddress, cbAddress))
	d.field("CircularBuffer.global_address", 4, from(oneOfTwo(value, false), cbImplAddress, cbAddress))

	// the configuration also begins with an optional address, which address() reads
	inConfig, _, err := d.chain(4, from(moved(result, 0), "CircularBufferConfig::globally_allocated_address const"))
	if err != nil {
		d.miss("CircularBuffer.is_global", err.Error())
		d.miss("CircularBuffer.size", err.Error())
		return
	}
	global, ok := d.field("CircularBuffer.is_global", 1,
		from(optionalInConfig(inConfig), cbImplAddress, cbAddress),
		from(inPointee(first(accesses(1))), "CircularBuffer::globally_allocated const"))
	if !ok {
		d.miss("CircularBuffer.size", "the place of its configuration is unknown")
		return
	}
	config := global[0] - 4 - inConfig[0]
	d.field("CircularBuffer.size", 4,
		from(moved(result, config), "CircularBufferConfig::total_size const"),
		from(inPointee(result), "CircularBuffer::size const"))
}

// kernelText finds the size of the code of a program's kernels in the L1 of each Tensix core. It
// is in the first ProgramConfig.
func (d *deriver) kernelText() error {
	fl, err := d.flowOf("detail::ProgramImpl::get_program_config const", "detail::ProgramImpl::get_program_config")
	if err != nil {
		return err
	}
	begin, bytes := fl.indexed()
	if bytes == 0 {
		return fmt.Errorf("get_program_config: %w", errShape)
	}
	// finalize_program_offsets has a copy of it in its frame, after the number with which it
	// counts the offsets: the size of the text is the last field of both
	d.field(kernelTextSize, 4, from(func(f *flow) (Chain, error) {
		if behind, ok := f.textBehindOffset(); !ok || behind != int64(bytes) {
			return nil, fmt.Errorf("a ProgramConfig has %d bytes, but the size lies %d behind the offset", bytes, behind)
		}
		return Chain{begin, bytes - 4}, nil
	}, "detail::ProgramImpl::finalize_program_offsets"))
	return nil
}

const kernelTextSize = "ProgramImpl.kernel_text_size"

// vectorOfResult finds the vector that a function returns, as a span or as a reference.
func vectorOfResult(f *flow) (Chain, error) {
	if begin, err := firstVector(f); err == nil {
		return begin, nil
	}
	return returned(f)
}

// firstVector finds the first vector in its object whose begin and end a function reads.
func firstVector(f *flow) (Chain, error) {
	for i := range f.steps {
		if begin, ok := f.pair(i, 0); ok && len(begin) == 1 {
			return begin, nil
		}
	}
	return nil, errShape
}

// flagged finds the flag that a function compares with 0, and sets.
func flagged(f *flow) (Chain, error) {
	compared, err := f.first(compares(1, 0))
	if err != nil {
		return nil, err
	}
	return f.first(func(s *x86.Step) (Chain, bool) {
		c, ok := setsTrue(s)
		return c, ok && slices.Equal(c, compared)
	})
}

// oneOfTwo finds one of two 4-byte fields in a function that returns one of them: the given
// field, or the other.
func oneOfTwo(one Chain, same bool) finder {
	return func(f *flow) (Chain, error) {
		fields := f.all(func(s *x86.Step) (Chain, bool) {
			var a x86.Value
			switch {
			case s.Op == x86asm.MOV && s.MemBytes == 4:
				a, _ = s.Access()
			case s.Op == x86asm.ADD || s.Op == x86asm.LEA:
				// only the address: the paths join before the load
				if s.Args[0] != x86asm.Arg(x86asm.RDI) || !f.calls(s) {
					a = s.Result()
				}
			}
			return direct(a.Chain(0))
		})
		if len(fields) != 2 || !contains(fields, one) {
			return nil, errShape
		}
		if slices.Equal(fields[0], one) == same {
			return fields[0], nil
		}
		return fields[1], nil
	}
}

// calls reports whether the next instruction is a call.
func (f *flow) calls(s *x86.Step) bool {
	return slices.ContainsFunc(f.steps, func(next *x86.Step) bool { return next.At == s.Next() && next.Op == x86asm.CALL })
}

// optionalInConfig finds the flag of the optional address in a configuration: address() calls the
// configuration's function for it, or tests the 8 bytes itself.
func optionalInConfig(inConfig Chain) finder {
	return func(f *flow) (Chain, error) {
		return f.first(func(s *x86.Step) (Chain, bool) {
			if strings.Contains(f.callee(s), "26globally_allocated_address") {
				if c, ok := direct(s.State.Arg(0).Chain(0)); ok {
					return Chain{c[0] + inConfig[0] + 4}, true
				}
			} else if c, ok := direct(s.Accessed(0)); ok && s.Is(x86asm.TEST, 8) {
				return Chain{c[0] + 4}, true
			}
			return nil, false
		})
	}
}

// indexed is the vector and the size of its elements in a function that returns the address
// of the element with the index in its second argument. The size is 0 for any other
// function.
func (f *flow) indexed() (begin, bytes int32) {
	factors := map[int]int32{x86.RSI: 1}
	for _, s := range f.steps {
		to, _, ok := x86.Register(s.Args[0])
		if !ok {
			continue
		}
		from, _, fromRegister := x86.Register(s.Args[1])
		switch s.Op {
		case x86asm.MOV:
			if fromRegister {
				factors[to] = factors[from]
			}
		case x86asm.IMUL:
			if n, ok := s.Args[2].(x86asm.Imm); ok && fromRegister {
				factors[to] = factors[from] * int32(n)
			}
		case x86asm.SHL:
			if n, ok := s.Args[1].(x86asm.Imm); ok && n < 16 {
				factors[to] <<= n
			}
		case x86asm.LEA:
			if m, _, ok := s.Mem(); ok && m.Disp == 0 && m.Index != 0 {
				index, _, _ := x86.Register(m.Index)
				n := factors[index] * int32(m.Scale)
				if base, _, ok := x86.Register(m.Base); ok {
					n += factors[base]
				}
				factors[to] = n
			}
		case x86asm.ADD:
			a, _ := s.Access()
			if c, ok := a.Chain(0); ok && len(c) == 1 && s.MemBytes == 8 {
				return c[0], factors[to]
			}
		}
	}
	return 0, 0
}

// textBehindOffset is the distance, in a frame, from the offset to the size of the text.
// finalize_kernel_bins(device, core type, kernels, groups, offset, &text_offset,
// &text_size) gets the offset as an argument and returns it.
func (f *flow) textBehindOffset() (int64, bool) {
	for i := 0; i+4 < len(f.steps); i++ {
		call := f.steps[i]
		if call.Op != x86asm.CALL || !strings.Contains(f.callee(call), "20finalize_kernel_binsE") {
			continue
		}
		// the reference to the size is on the stack
		to := call.State.Content(call.State.Regs[x86.RSP], 8)
		size, ok := to.InFrame()
		if !ok || call.State.Arg(5).Plus(4) != to {
			return 0, false
		}
		for j := i + 1; j < i+4; j++ {
			s := f.steps[j]
			a, _ := s.Access()
			if at, ok := a.InFrame(); ok && s.Op == x86asm.MOV && s.Args[1] == x86asm.Arg(x86asm.EAX) {
				return int64(size) - int64(at), true
			}
		}
	}
	return 0, false
}
