package layout

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// What a program uses: its kernels, with their arguments, and its circular and dataflow buffers that lie in
// tensors. The kernels of each type of core are in a std::unordered_map, which bpf/src/uses.h reads.

// UsesFields are the fields that say what a program uses: without one of them that is not read.
var UsesFields = []string{
	"Program.impl", "ProgramImpl.id", "ProgramImpl.kernels_", "Kernel.runtime_args_data", "Kernel.common_runtime_args_data",
	"Kernel.logical_cores", "ProgramImpl.circular_buffers_", "CircularBuffer.is_global", "CircularBuffer.global_address",
	"ProgramImpl.dataflow_buffers_", "DataflowBuffer.borrows_memory", "DataflowBuffer.address",
}

// attachDFBs places dataflow buffers in tensors, from 0.72 on.
const attachDFBs = "experimental::AttachBorrowedDFBBuffers"

// uses finds what a program uses.
func (d *deriver) uses() {
	d.field("ProgramImpl.kernels_", 8,
		from(vectorOfMaps, "detail::ProgramImpl::get_kernels"),
		from(firstVector, "detail::ProgramImpl::get_kernel const"))
	// a vector of vectors of the words and their number, by x and y; the words move when the program is enqueued
	d.field("Kernel.runtime_args_data", 8, from(returned, "Kernel::runtime_args_data()"))
	d.field("Kernel.common_runtime_args_data", 8, from(returned, "Kernel::common_runtime_args_data()"))
	d.field("Kernel.logical_cores", 8, from(returned, "Kernel::logical_cores() const"))
	// the Buffer that has its memory on all chips; nothing that is a Buffer, if another object owns the memory
	d.field("MeshBuffer.backing_buffer", 8, from(result, "distributed::MeshBuffer::get_backing_buffer() const"))
	// a vector of the Buffers on its chips, also of an object that does not own the memory
	d.field("MeshBuffer.buffers", 8, from(localParts, "distributed::MeshBuffer::get_reference_buffer() const"))
	if len(d.e.WithPrefix(mangle(attachDFBs))) == 0 {
		return
	}
	d.field("ProgramImpl.dataflow_buffers_", 8, from(returned, "detail::ProgramImpl::dataflow_buffers() const"))
	d.field("DataflowBuffer.borrows_memory", 1, from(borrowed(false), attachDFBs))
	d.field("DataflowBuffer.address", 4, from(borrowed(true), attachDFBs))
}

// partIndex is where the elements of a MeshBuffer's vector of Buffers have 1 if their chip is one of this host.
const partIndex = 0x10

// localParts finds a vector of whose elements a function seeks one of this host, as bpf/src/buffer.h does.
func localParts(f *flow) (Chain, error) {
	for _, s := range f.steps {
		if m, n, ok := s.Mem(); ok && n == 0 && m.Disp == partIndex && s.Is(x86asm.CMP, 1) && s.Has(1, 1) {
			return firstVector(f)
		}
	}
	return nil, errShape
}

// mapBytes is the size of libstdc++'s std::unordered_map.
const mapBytes = 56

// vectorOfMaps finds the vector of std::unordered_map of which a function returns an element.
func vectorOfMaps(f *flow) (Chain, error) {
	for _, s := range f.steps {
		if s.Op == x86asm.IMUL && s.Args[2] == x86asm.Arg(x86asm.Imm(mapBytes)) {
			return firstVector(f)
		}
	}
	return nil, errShape
}

// maxBorrow is how many instructions after Buffer::address() its result is stored.
const maxBorrow = 8

// borrowed finds where a dataflow buffer has the address of the tensor in which it lies, or the flag that it lies in
// one: the flag is compared with 0 after the address was read, and then the address is stored.
func borrowed(address bool) finder {
	return func(f *flow) (Chain, error) {
		for i, call := range f.steps {
			if call.Op != x86asm.CALL || !strings.Contains(f.callee(call), "6Buffer7addressEv") {
				continue
			}
			flag := x86asm.Mem{}
			for _, s := range f.steps[i+1 : min(i+1+maxBorrow, len(f.steps))] {
				m, n, ok := s.Mem()
				if !ok || n != 0 || m.Index != 0 {
					continue
				}
				switch {
				case s.Is(x86asm.CMP, 1) && s.Has(1, 0):
					flag = m
				case s.Is(x86asm.MOV, 4) && s.Args[1] == x86asm.Arg(x86asm.EAX) && flag.Base != 0 && flag.Base == m.Base:
					if address {
						return Chain{int32(m.Disp)}, nil
					}
					return Chain{int32(flag.Disp)}, nil
				}
			}
		}
		return nil, errShape
	}
}
