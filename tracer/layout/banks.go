package layout

import (
	"encoding/binary"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// banks finds what an allocator's banks are like: how many, how large, and to
// what pages are rounded.
func (d *deriver) banks() {
	const costs = "what a buffer takes of each bank, and capacities, are not known"
	count := d.lastLoad(d.function(numBanks), 4)
	if len(count) == 1 {
		d.Fields["BankManager.num_banks_"] = count
	} else {
		d.miss("BankManager::num_banks", "num_banks() returns no field", costs)
	}

	// bank_size(): the size of the first allocator; what comes before it checks
	// that there is one
	size := Chain(nil)
	d.walk(d.function(bankSize), func(s *step) bool {
		if isThis(s, 0, 8) && s.in.Op == x86asm.MOV && !s.store {
			size = s.mem.chain()
		}
		return s.in.Op != x86asm.RET
	})
	if len(size) > 1 {
		d.Fields["BankManager.bank_size"] = size
	} else {
		d.miss("BankManager::bank_size", "bank_size() follows no pointer", costs)
	}

	if c := d.alignment(count); len(c) == 1 {
		d.Fields["BankManager.alignment_bytes_"] = c
	} else {
		d.miss("BankManager::alignment_bytes_", "allocate_buffer() rounds pages to no field", costs)
	}

	if !d.managers() {
		d.miss("Allocator's BankManagers", "get_num_banks() has no table of them", costs)
	}
}

// alignment reads BankManager::allocate_buffer, which divides the page's size by
// it, or hands it to the function that does.
func (d *deriver) alignment(count Chain) Chain {
	field := func(v value) Chain {
		if !v.known || v.arg != 0 || len(v.loads) != 1 || v.add != 0 || slices.Equal(Chain(v.loads), count) {
			return nil
		}
		return Chain{v.loads[0]}
	}
	var found Chain
	for _, f := range d.functions[bankAllocate] {
		d.walk(f, func(s *step) bool {
			switch {
			case s.in.Op == x86asm.DIV:
				if found = field(s.reg(s.in.Args[0])); found == nil && s.mem.known && s.bytes == 4 {
					found = field(s.mem.load())
				}
			case s.in.Op == x86asm.CALL && contains(s.call, "calculate_bank_size_spread"):
				found = field(s.arg(3))
			}
			return found == nil
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// managers reads get_num_banks(BufferType): a table by type says where in the
// allocator the pointer to the BankManager lies.
func (d *deriver) managers() bool {
	f := d.function(banksOf)
	if f.Addr == 0 {
		f = d.function(banksOfOld)
	}
	if f.Addr == 0 {
		return false
	}
	table, end := d.tableBefore(f)
	if table == 0 || end == 0 {
		return false
	}
	bytes, err := d.elf.Text(table, 5*8)
	if err != nil || len(bytes) < 5*8 {
		return false
	}
	var managers [5]int
	for i := range managers {
		offset := binary.LittleEndian.Uint64(bytes[i*8:])
		managers[i] = int(offset)
		if i == 2 { // SYSTEM_MEMORY has no banks; its entry is padding
			managers[i] = -1
		} else if offset == 0 || offset > 1<<12 || offset%8 != 0 {
			return false
		}
	}
	d.Managers = managers
	return true
}

// tableBefore finds `lea r, [rip+table]` followed by a load of table[type*8].
func (d *deriver) tableBefore(f symbolize.Symbol) (table, end uint64) {
	base := -1
	d.walk(f, func(s *step) bool {
		for _, arg := range s.in.Args {
			mem, ok := arg.(x86asm.Mem)
			if !ok {
				continue
			}
			if s.in.Op == x86asm.LEA && mem.Base == x86asm.RIP {
				base, _ = register(s.in.Args[0])
				table = s.addr + uint64(s.in.Len) + uint64(int64(int32(mem.Disp)))
			}
			if n, ok := register(mem.Base); ok && n == base && mem.Scale == 8 && s.in.Op == x86asm.MOV {
				end = s.addr
				return false
			}
		}
		return true
	})
	return table, end
}
