package layout

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

var noManagers = [Types]int{-1, -1, -1, -1, -1}

// allocator finds the fields with the capacity of a bank and with the bytes of a bank that a
// buffer takes.
func (d *deriver) allocator() {
	d.attempt("Allocator.managers", d.managers)
	banks, _ := d.field("BankManager.num_banks_", 4,
		from(result, "BankManager::num_banks() const"),
		from(banksOfType, implNumBanks),
		from(first(initialises), managerAllocate))
	d.field("BankManager.bank_size", 8, from(result, "BankManager::bank_size() const"))
	// allocate_buffer divides by the alignment of pages and by the number of banks, or passes
	// them to the function that divides
	d.field("BankManager.alignment_bytes_", 4,
		from(func(f *flow) (Chain, error) {
			return only(slices.DeleteFunc(f.all(divides), func(c Chain) bool { return slices.Equal(c, banks) }))
		}, managerAllocate),
		// (this, const BufferType&, offsets of the banks, bytes m, alignment j, …)
		from(first(on(x86asm.MOV, 4, func(s *x86.Step) (Chain, bool) {
			c, ok := direct(s.Accessed(0))
			return c, ok && s.Operand(1) == x86.Rooted(x86.Argument, 4)
		})), "BankManager::C1(RKNS0_10BufferTypeERKSt6vectorIlSaIlEEmj"))
	// The offset that a bank's free list adds to the addresses of its blocks, and the alignment
	// of their sizes. In L1 that is larger than the alignment of the BankManager's pages.
	d.field("FreeListOpt.offset_bytes_", 8,
		from(first(subtracts), "allocator::FreeListOpt::deallocate(m)"),
		from(first(subtracts), "allocator::FreeListOpt::get_allocation_size(m) const"))
	d.field("FreeListOpt.alignment_", 8,
		from(single(divides), "allocator::FreeListOpt::allocate"),
		from(single(divides), "allocator::FreeListOpt::allocate_at_address"))
	// The bytes that the banks lack at their beginning, for the allocators of sub-devices.
	d.field("FreeListOpt.shrink_size_", 8,
		from(first(on(x86asm.ADD, 8, func(s *x86.Step) (Chain, bool) {
			c, ok := direct(s.Accessed(0))
			return c, ok && s.Operand(1) == x86.Rooted(x86.Argument, 1)
		})), "allocator::FreeListOpt::shrink_size"),
		from(first(on(x86asm.MOV, 8, func(s *x86.Step) (Chain, bool) { return direct(s.Accessed(0)) })), "allocator::FreeListOpt::reset_size()"))
}

const (
	implNumBanks    = "AllocatorImpl::get_num_banks const"
	managerAllocate = "BankManager::allocate_buffer"
)

// managers finds the pointers to the BankManagers in the allocator, by type of buffer.
// get_num_banks(const BufferType&) looks the type up in a table of offsets: `mov rax,
// [table+type*8]; mov rax, [this+rax]`, for the types of a mask.
func (d *deriver) managers() error {
	fl, err := d.flowOf(implNumBanks, "Allocator::get_num_banks const")
	if err != nil {
		return err
	}
	mask, table := fl.typeMask(), fl.table()
	words, err := d.e.Bytes(table, Types*8)
	managers, found := noManagers, mask != 0 && err == nil
	for t := range managers {
		if !found || mask>>t&1 == 0 {
			continue
		}
		offset := binary.LittleEndian.Uint64(words[t*8:])
		found = plausible(Chain{int32(min(offset, maxOffset+1))}, 8) == nil && offset != 0 && !slices.Contains(managers[:t], int(offset))
		managers[t] = int(offset)
	}
	if !found {
		return fmt.Errorf("%s: %w", symbolize.ShortName(fl.fn.Name), errShape)
	}
	d.layout.Managers = managers
	return nil
}

// typeMask is the set of types in a function's table: a constant that `bt` or a shift
// tests.
func (f *flow) typeMask() uint64 {
	for _, s := range f.steps {
		n, _, ok := x86.Register(s.Args[0])
		_, register := s.Args[1].(x86asm.Reg)
		if !ok || !register || s.Op != x86asm.BT && s.Op != x86asm.SHR {
			continue
		}
		if v := s.State.Regs[n]; v.Root == x86.Constant || v.Root == x86.Constant8 {
			if v.ID >= 1<<Types {
				return 0
			}
			return v.ID
		}
	}
	return 0
}

// table returns the address of the table with the offset of a load.
func (f *flow) table() uint64 {
	for _, s := range f.steps {
		m, _, _ := s.Mem()
		base, _, hasBase := x86.Register(m.Base)
		index, _, hasIndex := x86.Register(m.Index)
		if !hasBase || !hasIndex || !s.Is(x86asm.MOV, 8) || m.Scale != 1 || m.Disp != 0 {
			continue
		}
		object, offset := s.State.Regs[base], s.State.Regs[index]
		if object.Root == x86.Entry { // either register may be the base
			object, offset = offset, object
		}
		if object == x86.Rooted(x86.Argument, 0) && offset.Root == x86.Entry {
			return offset.ID
		}
	}
	return 0
}

// banksOfType finds the number of banks in functions where get_num_banks reads it from the
// BankManager itself: after the load with the offset from the table.
func banksOfType(f *flow) (Chain, error) {
	for i := 0; i+1 < len(f.steps); i++ {
		s, next := f.steps[i], f.steps[i+1]
		m, _, ok := s.Mem()
		if !ok || m.Index == 0 || m.Scale != 1 || s.Op != x86asm.MOV || s.MemBytes != 8 {
			continue
		}
		field, _, ok := next.Mem()
		if ok && next.Op == x86asm.MOV && next.MemBytes == 4 && x86asm.Arg(field.Base) == s.Args[0] && field.Index == 0 {
			return Chain{int32(field.Disp)}, nil
		}
	}
	return nil, errShape
}

// initialises matches the initialisation of a variable of 4 bytes in the frame with a field:
// the number of banks over which allocate_buffer spreads the pages unless there are shards.
var initialises = on(x86asm.MOV, 4, func(s *x86.Step) (Chain, bool) {
	if a, ok := s.Access(); !ok || a.Root != x86.Frame {
		return nil, false
	}
	return direct(s.Operand(1).Loaded(0))
})

// subtracts is the field that a function subtracts from its argument.
var subtracts = on(x86asm.SUB, 8, func(s *x86.Step) (Chain, bool) {
	if s.Operand(0) != x86.Rooted(x86.Argument, 1) {
		return nil, false
	}
	return s.Accessed(0)
})
