package layout

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize/x86"
)

// The functions of Buffer that are read several times, newest first. Up to 0.78 the fields are in
// the Buffer, from then on in a BufferImpl that it points to. The accessors always get Buffer*;
// these and the constructor get the object with the fields.
const (
	implAllocate     = "BufferImpl::allocate_impl"
	bufferAllocate   = "Buffer::allocate_impl"
	implDeallocate   = "BufferImpl::deallocate_impl"
	bufferDeallocate = "Buffer::deallocate_impl"
	bufferNumCores   = "Buffer::num_cores() const"
)

// bufferFields are Buffer's fields with their widths in bytes.
var bufferFields = map[string]int32{
	"device_": 8, "size_": 8, "buffer_type_": 4, "buffer_layout_": 4, "owns_data_": 1, "allocator_": 8,
	"allocation_status_": 1, "hooked_allocation_": 1, "address_": 8, "page_size_": 8, "unique_id_": 8,
}

// buffer finds the fields of Buffer, from Buffer*.
func (d *deriver) buffer() {
	for _, name := range uniqueCounters {
		if s, ok := d.e.Lookup(name); ok {
			d.layout.BufferCounter = s.Addr
		}
	}
	pageSize, ok := d.field("page_size_", 8,
		from(result, "Buffer::page_size() const"),
		from(first(divisor), "Buffer::num_pages() const"))
	if !ok {
		// page_size_ shows whether the fields are behind a pointer
		for _, name := range slices.Sorted(maps.Keys(bufferFields)) {
			if name != "page_size_" {
				d.miss(name, "Buffer::page_size_ is unknown, so it is unknown whether there is a BufferImpl")
			}
		}
		return
	}
	impl := pageSize[:len(pageSize)-1]
	// of functions that get the object with the fields
	allocate := func(find finder) source { return from(within(impl, find), implAllocate, bufferAllocate) }
	deallocate := func(find finder) source { return from(within(impl, find), implDeallocate, bufferDeallocate) }

	d.field("size_", 8,
		from(result, "Buffer::size() const"),
		from(first(dividend), "Buffer::num_pages() const"),
		deallocate(first(compares(8, 0))))
	d.field("buffer_type_", 4,
		from(result, "Buffer::buffer_type() const"),
		from(first(accesses(4)), "Buffer::is_dram() const"),
		from(first(accesses(4)), "Buffer::is_l1() const"))
	d.field("buffer_layout_", 4,
		from(result, "Buffer::buffer_layout() const"),
		from(first(accesses(4)), bufferNumCores),
		from(first(accesses(4)), "Buffer::aligned_size_per_bank() const"))
	status, _ := d.field("allocation_status_", 1,
		from(first(compares(1, 0)), "Buffer::address() const"),
		from(first(compares(1, 1)), "Buffer::is_allocated() const"),
		deallocate(first(compares(1, 1))))
	d.field("address_", 8,
		from(result, "Buffer::address() const"),
		allocate(single(storesResult)))
	d.field("hooked_allocation_", 1,
		allocate(except(status, setsTrue)),
		// besides the status, deallocate_impl tests only this flag
		deallocate(except(status, func(s *x86.Step) (Chain, bool) { return direct(compares(1, 0, 1)(s)) })))
	d.field("owns_data_", 1,
		from(within(impl, first(comparesAny(1))), "BufferImpl::deallocate", "Buffer::deallocate"),
		from(destroyed(status), "Buffer::D1()"))
	d.field("device_", 8,
		from(result, "Buffer::device() const"),
		deallocate(first(callsObject)),
		allocate(first(callsObject)))
	d.field("allocator_", 8,
		allocate(passed("15allocate_bufferEPNS0_6BufferE")),
		deallocate(passed("17deallocate_bufferEPNS0_6BufferE")))
	d.field("unique_id_", 8,
		from(result, "Buffer::unique_id() const"),
		from(within(impl, d.counted), "BufferImpl::C1", "Buffer::C1(PNS0_7IDeviceE)"))
	d.checkBuffer(impl)
}

// checkBuffer drops fields that contradict each other: all must be in the same object, and none
// may overlap another.
func (d *deriver) checkBuffer(impl Chain) {
	wrong := map[string]string{}
	for name, width := range bufferFields {
		c, ok := d.layout.Fields[name]
		if !ok {
			continue
		}
		if len(c) != len(impl)+1 || !slices.Equal(c[:len(impl)], impl) {
			wrong[name] = fmt.Sprintf("found at %v, but page_size_ in another object at %v", c, d.layout.Fields["page_size_"])
			continue
		}
		at := c[len(c)-1]
		for other, otherWidth := range bufferFields {
			o, ok := d.layout.Fields[other]
			if !ok || other == name || len(o) != len(c) {
				continue
			}
			if from := o[len(o)-1]; at < from+otherWidth && from < at+width {
				wrong[name] = fmt.Sprintf("found at %v, over %s at %v", c, other, o)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		delete(d.layout.Fields, name)
		d.miss(name, wrong[name])
	}
}

// divisor and dividend are the operands of num_pages(): page_size_ and size_. A 32-bit division
// of the same values follows a 64-bit one.
var (
	divisor  = on(x86asm.DIV, 0, func(s *x86.Step) (Chain, bool) { return s.Operand(0).Loaded(0) })
	dividend = on(x86asm.DIV, 0, func(s *x86.Step) (Chain, bool) { return s.State.Regs[x86.RAX].Loaded(0) })
)

// destroyed finds the flag that ~Buffer tests besides the status: whether the Buffer owns
// its memory.
func destroyed(status Chain) finder {
	return func(f *flow) (Chain, error) {
		past := false
		return f.first(func(s *x86.Step) (Chain, bool) {
			c, ok := s.Accessed(0)
			if !ok || s.MemBytes != 1 || len(c) != len(status) {
				return nil, false
			}
			if slices.Equal(c, status) {
				past = true
				return nil, false
			}
			return c, past && s.Op == x86asm.CMP
		})
	}
}

// storesResult is where allocate_impl stores the allocator's result: an unknown value of 8
// bytes, whereas the graph tracker's path stores 0.
var storesResult = on(x86asm.MOV, 8, func(s *x86.Step) (Chain, bool) {
	c, ok := direct(s.Accessed(0))
	return c, ok && s.Args[1] == x86asm.Arg(x86asm.RAX)
})

// callsObject finds the field with an object whose virtual function a function calls or jumps to:
// `mov rdi, [this+device]; mov rax, [rdi]; call [rax+n]`.
func callsObject(s *x86.Step) (Chain, bool) {
	if s.Op != x86asm.CALL && s.Op != x86asm.JMP {
		return nil, false
	}
	function, ok := s.Accessed(0)
	if !ok || len(function) != 3 || function[1] != 0 {
		return nil, false
	}
	object, ok := direct(s.State.Arg(0).Loaded(0))
	return object, ok && object[0] == function[0]
}

// counted finds where the constructor stores the new value of the id counter: `lock xadd
// [next_unique_id], rcx; mov [this+id], rcx`.
func (d *deriver) counted(f *flow) (Chain, error) {
	counters := map[x86.Value]bool{}
	for _, s := range f.steps {
		if a, ok := s.Access(); ok && s.Is(x86asm.XADD, 8) && d.isCounter(a) {
			counters[x86.Rooted(x86.Counter, s.At)] = true
		}
	}
	return f.first(func(s *x86.Step) (Chain, bool) {
		if !s.Is(x86asm.MOV, 8) || !counters[s.Operand(1)] {
			return nil, false
		}
		return s.Accessed(0)
	})
}

// uniqueCounters are the names of the id counter.
var uniqueCounters = []string{"_ZN2tt8tt_metal6Buffer14next_unique_idE", "_ZN2tt8tt_metal10BufferImpl14next_unique_idE"}

// isCounter reports whether an address is that of next_unique_id: directly, or through the
// global offset table.
func (d *deriver) isCounter(a x86.Value) bool {
	switch {
	case a.Root == x86.Constant:
		for _, name := range uniqueCounters {
			if s, ok := d.e.Lookup(name); ok && s.Addr == a.ID {
				return true
			}
		}
	case a.Root == x86.Global:
		name, ok := d.e.Slot(a.ID)
		distance, direct := a.InGlobal()
		return ok && direct && distance == 0 && slices.Contains(uniqueCounters, name)
	}
	return false
}
