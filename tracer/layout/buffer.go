package layout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// The functions of Buffer. Its fields lie in the Buffer up to 0.78, and from then on in a
// BufferImpl that it points to. The accessors always get Buffer*; allocate_impl,
// deallocate_impl and the constructor get the object with the fields.
const (
	bufferAddress   = "_ZNK2tt8tt_metal6Buffer7addressEv"
	bufferAllocated = "_ZNK2tt8tt_metal6Buffer12is_allocatedEv"
	bufferSize      = "_ZNK2tt8tt_metal6Buffer4sizeEv"
	bufferPageSize  = "_ZNK2tt8tt_metal6Buffer9page_sizeEv"
	bufferNumPages  = "_ZNK2tt8tt_metal6Buffer9num_pagesEv"
	bufferType      = "_ZNK2tt8tt_metal6Buffer11buffer_typeEv"
	bufferIsDRAM    = "_ZNK2tt8tt_metal6Buffer7is_dramEv"
	bufferIsL1      = "_ZNK2tt8tt_metal6Buffer5is_l1Ev"
	bufferLayout    = "_ZNK2tt8tt_metal6Buffer13buffer_layoutEv"
	bufferNumCores  = "_ZNK2tt8tt_metal6Buffer9num_coresEv"
	bufferPerBank   = "_ZNK2tt8tt_metal6Buffer21aligned_size_per_bankEv"
	bufferDevice    = "_ZNK2tt8tt_metal6Buffer6deviceEv"
	bufferUniqueID  = "_ZNK2tt8tt_metal6Buffer9unique_idEv"
	bufferD1        = "_ZN2tt8tt_metal6BufferD1Ev"

	implAllocate     = "_ZN2tt8tt_metal10BufferImpl13allocate_implE"
	bufferAllocate   = "_ZN2tt8tt_metal6Buffer13allocate_implE"
	implDeallocate   = "_ZN2tt8tt_metal10BufferImpl15deallocate_implE"
	bufferDeallocate = "_ZN2tt8tt_metal6Buffer15deallocate_implE"
	implRelease      = "_ZN2tt8tt_metal10BufferImpl10deallocateE"
	bufferRelease    = "_ZN2tt8tt_metal6Buffer10deallocateE"
	implCtor         = "_ZN2tt8tt_metal10BufferImplC1E"
	bufferCtor       = "_ZN2tt8tt_metal6BufferC1EPNS0_7IDeviceE"
)

// bufferFields are Buffer's fields with their widths in bytes.
var bufferFields = map[string]int32{
	"device_": 8, "size_": 8, "buffer_type_": 4, "buffer_layout_": 4, "owns_data_": 1, "allocator_": 8,
	"allocation_status_": 1, "hooked_allocation_": 1, "address_": 8, "page_size_": 8, "unique_id_": 8,
}

// buffer finds the fields of Buffer, from Buffer*.
func (d *deriver) buffer() {
	pageSize, ok := d.field("page_size_", 8,
		from(result, bufferPageSize),
		from(dividend(1), bufferNumPages))
	if !ok {
		// page_size_ tells whether the fields lie behind a pointer
		for _, name := range slices.Sorted(maps.Keys(bufferFields)) {
			if name != "page_size_" {
				d.miss(name, "Buffer::page_size_ is unknown, so it is unknown whether there is a BufferImpl")
			}
		}
		return
	}
	impl := pageSize[:len(pageSize)-1]
	// inImpl converts a chain from the object with the fields to one from Buffer*
	inImpl := func(find finder) finder {
		return func(f *flow) (Chain, error) {
			c, err := find(f)
			if err != nil {
				return nil, err
			}
			return slices.Concat(impl, c), nil
		}
	}

	d.field("size_", 8,
		from(result, bufferSize),
		from(dividend(0), bufferNumPages),
		from(inImpl(compared(8, 0)), implDeallocate, bufferDeallocate))
	d.field("buffer_type_", 4,
		from(result, bufferType),
		from(firstAccess(4), bufferIsDRAM),
		from(firstAccess(4), bufferIsL1))
	d.field("buffer_layout_", 4,
		from(result, bufferLayout),
		from(firstAccess(4), bufferNumCores),
		from(firstAccess(4), bufferPerBank))
	status, _ := d.field("allocation_status_", 1,
		from(compared(1, 0), bufferAddress),
		from(compared(1, 1), bufferAllocated),
		from(inImpl(compared(1, 1)), implDeallocate, bufferDeallocate))
	d.field("address_", 8,
		from(result, bufferAddress),
		from(inImpl(allocated), implAllocate, bufferAllocate))
	d.field("hooked_allocation_", 1,
		from(inImpl(except(status, marks)), implAllocate, bufferAllocate),
		from(inImpl(otherTested(status)), implDeallocate, bufferDeallocate))
	d.field("owns_data_", 1,
		from(inImpl(tested), implRelease, bufferRelease),
		from(destroyed(status), bufferD1))
	d.field("device_", 8,
		from(result, bufferDevice),
		from(inImpl(calledObject), implDeallocate, bufferDeallocate),
		from(inImpl(calledObject), implAllocate, bufferAllocate))
	d.field("allocator_", 8,
		from(inImpl(passed("15allocate_bufferEPNS0_6BufferE")), implAllocate, bufferAllocate),
		from(inImpl(passed("17deallocate_bufferEPNS0_6BufferE")), implDeallocate, bufferDeallocate))
	d.field("unique_id_", 8,
		from(result, bufferUniqueID),
		from(inImpl(d.counted), implCtor, bufferCtor))
	d.checkBuffer(impl)
}

// checkBuffer drops fields that contradict each other: all must lie in the same object, and
// none may overlap another.
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

// dividend finds the dividend of num_pages(), size_ (0), or its divisor, page_size_ (1). A
// 32-bit division of the same values follows a 64-bit one.
func dividend(which int) finder {
	return first(func(s *step) (Chain, bool) {
		switch {
		case s.op != x86asm.DIV:
			return nil, false
		case which == 1:
			return s.operand(0).loaded(0)
		}
		return s.state.regs[rax].loaded(0)
	})
}

// firstAccess finds the first field of a width that a function accesses.
func firstAccess(bytes int) finder {
	return first(func(s *step) (Chain, bool) {
		c, ok := s.accessed(0)
		return c, ok && s.bytes == bytes
	})
}

// comparesAny is the field of a width that a step compares with a number.
func comparesAny(bytes int, s *step) (Chain, bool) {
	if _, number := s.args[1].(x86asm.Imm); !number || !s.is(x86asm.CMP, bytes) {
		return nil, false
	}
	return s.accessed(0)
}

// compared finds the first field of a width that a function compares with a number.
func compared(bytes int, with int64) finder {
	return first(func(s *step) (Chain, bool) {
		c, ok := comparesAny(bytes, s)
		return c, ok && s.has(1, with)
	})
}

// tested finds the first byte that a function compares with any number.
var tested = first(func(s *step) (Chain, bool) { return comparesAny(1, s) })

// otherTested finds the only flag besides the status that deallocate_impl tests: whether
// the allocation was hooked.
func otherTested(status Chain) finder {
	return except(status, func(s *step) (Chain, bool) {
		c, ok := direct(comparesAny(1, s))
		return c, ok && (s.has(1, 0) || s.has(1, 1))
	})
}

// marks is the byte that a step sets to 1.
func marks(s *step) (Chain, bool) {
	if !s.is(x86asm.MOV, 1) || !s.has(1, 1) {
		return nil, false
	}
	return s.accessed(0)
}

// except returns the finder of the only other field than one that get returns for the
// steps.
func except(field Chain, get func(*step) (Chain, bool)) finder {
	return func(f *flow) (Chain, error) {
		if len(field) == 0 {
			return nil, fmt.Errorf("the field beside it is not known")
		}
		last := func(c Chain) int32 { return c[len(c)-1] }
		return only(slices.DeleteFunc(f.all(get), func(c Chain) bool { return last(c) == last(field) }))
	}
}

// destroyed finds the flag that ~Buffer tests besides the status: whether the Buffer owns
// its memory.
func destroyed(status Chain) finder {
	return func(f *flow) (Chain, error) {
		past := false
		return f.first(func(s *step) (Chain, bool) {
			c, ok := s.accessed(0)
			if !ok || s.bytes != 1 || len(c) != len(status) {
				return nil, false
			}
			if slices.Equal(c, status) {
				past = true
				return nil, false
			}
			return c, past && s.op == x86asm.CMP
		})
	}
}

// allocated finds where allocate_impl stores the allocator's result: an unknown value of 8
// bytes, whereas the graph tracker's path stores 0.
var allocated = single(func(s *step) (Chain, bool) {
	if !s.is(x86asm.MOV, 8) || s.args[1] != x86asm.Arg(x86asm.RAX) {
		return nil, false
	}
	return direct(s.accessed(0))
})

// calledObject finds the field with the object whose virtual function a function calls or
// jumps to first: `mov rdi, [this+device]; mov rax, [rdi]; call [rax+n]`.
var calledObject = first(func(s *step) (Chain, bool) {
	if s.op != x86asm.CALL && s.op != x86asm.JMP {
		return nil, false
	}
	function, ok := s.accessed(0)
	if !ok || len(function) != 3 || function[1] != 0 {
		return nil, false
	}
	object, ok := direct(s.state.arg(0).loaded(0))
	return object, ok && object[0] == function[0]
})

// passed finds the field that a function passes as first argument to the function with a
// suffix.
func passed(suffix string) finder {
	return func(f *flow) (Chain, error) {
		return f.first(func(s *step) (Chain, bool) {
			if !strings.HasSuffix(f.callee(s), suffix) {
				return nil, false
			}
			return s.state.arg(0).loaded(0)
		})
	}
}

// counted finds where the constructor stores the new value of the id counter: `lock xadd
// [next_unique_id], rcx; mov [this+id], rcx`.
func (d *deriver) counted(f *flow) (Chain, error) {
	counters := map[value]bool{}
	for i := range f.steps {
		s := &f.steps[i]
		if a, ok := s.access(); ok && s.is(x86asm.XADD, 8) && d.isCounter(a) {
			counters[rooted(counter, s.at)] = true
		}
	}
	return f.first(func(s *step) (Chain, bool) {
		if !s.is(x86asm.MOV, 8) || !counters[s.operand(1)] {
			return nil, false
		}
		return s.accessed(0)
	})
}

// uniqueCounters are the names of the id counter.
var uniqueCounters = []string{"_ZN2tt8tt_metal6Buffer14next_unique_idE", "_ZN2tt8tt_metal10BufferImpl14next_unique_idE"}

// isCounter reports whether an address is that of next_unique_id: directly, or through the
// global offset table.
func (d *deriver) isCounter(a value) bool {
	switch {
	case a.root == constant:
		for _, name := range uniqueCounters {
			if s, ok := d.e.Lookup(name); ok && s.Addr == a.id {
				return true
			}
		}
	case a.root == global && a.n == 1 && a.path[0] == 0:
		name, ok := d.e.Slot(a.id)
		return ok && slices.Contains(uniqueCounters, name)
	}
	return false
}
