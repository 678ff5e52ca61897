package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// PLTs returns the addresses of the stubs through which the file calls imported functions, such as
// __cxa_throw, by their names. It uses the relocations of the stubs' slots: stubs need no symbols.
func (e *ELF) PLTs(names ...string) map[string]uint64 {
	table := e.tableNames(tableDynsym, maxNames)
	found := make(map[string]uint64)
	for a, called := range e.plt() {
		name := cString(table, called)
		if !slices.Contains(names, name) {
			continue
		}
		if before, ok := found[name]; !ok || a < before {
			found[name] = a
		}
	}
	return found
}

// PLTName returns the name of the function that the stub at an address calls.
func (e *ELF) PLTName(addr uint64) (string, bool) {
	called, ok := e.plt()[addr]
	if !ok {
		return "", false
	}
	name := e.nameAt(tableDynsym, called)
	return name, name != ""
}

// Slot returns the symbol whose address the dynamic linker writes to a virtual address of
// the file (an entry of the GOT); false if there is none. It reads all relocations.
func (e *ELF) Slot(vaddr uint64) (string, bool) {
	symbol, ok := e.slots()[vaddr]
	if !ok {
		return "", false
	}
	name := e.nameAt(tableDynsym, symbol)
	return name, name != ""
}

// Pointer returns where the pointer at a virtual address of the file leads at run time, as an address
// in the file: from its relocation or, in a file that is loaded at its link address or has packed
// relocations (DT_RELR), from the content. It reads all relocations.
func (e *ELF) Pointer(vaddr uint64) (to uint64, err error) {
	found := false
	for _, s := range e.relocations {
		e.eachEntry(s, relaSize, maxRelocations, func(_ uint64, b []byte) {
			if binary.LittleEndian.Uint64(b) != vaddr {
				return
			}
			to, found = binary.LittleEndian.Uint64(b[16:]), true
			info := binary.LittleEndian.Uint64(b[8:])
			switch kind := elf.R_X86_64(uint32(info)); kind {
			case elf.R_X86_64_RELATIVE:
			case elf.R_X86_64_64:
				of, ok := e.symbol(tableDynsym, uint32(info>>32))
				if to += of.Addr; !ok {
					err = fmt.Errorf("the relocation at %#x is of an unknown symbol", vaddr)
				}
			default:
				err = fmt.Errorf("unknown relocation %v at %#x", kind, vaddr)
			}
		})
	}
	if found {
		return to, err
	}
	b, err := e.Bytes(vaddr, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// indexPLT finds the stubs through which a file calls functions that it imports, or that it
// exports and other files may replace. It returns the offset of the function's name by the stub's
// address.
func (e *ELF) indexPLT() map[uint64]uint32 {
	stubs := map[uint64]uint32{}
	slots := e.slots()
	for _, s := range e.stubs {
		if code, err := e.read(s.Offset, s.Size, maxStubs); err == nil {
			findStubs(code, s.Addr, slots, stubs)
		}
	}
	if !e.hasSections && len(slots) > 0 {
		e.searchStubs(slots, stubs)
	}
	return stubs
}

// findStubs adds the stubs in code at an address.
func findStubs(code []byte, addr uint64, slots, stubs map[uint64]uint32) {
	for at := uint64(0); at < uint64(len(code)); at += 8 {
		if slot, ok := stubSlot(code[at:], addr+at); ok {
			if symbol, ok := slots[slot]; ok {
				stubs[addr+at] = symbol
			}
		}
	}
}

// slots are the addresses into which the dynamic linker writes the address of a symbol,
// with the offset of the symbol's name.
func (e *ELF) slots() map[uint64]uint32 {
	table := e.symbols[tableDynsym]
	symbols, err := e.read(table.Offset, min(table.Size, maxImports*symbolSize), maxImports*symbolSize)
	if err != nil {
		return nil
	}
	slots := map[uint64]uint32{}
	for _, s := range e.relocations {
		e.eachEntry(s, relaSize, maxRelocations, func(_ uint64, b []byte) {
			info := binary.LittleEndian.Uint64(b[8:])
			kind, symbol := elf.R_X86_64(uint32(info)), info>>32*symbolSize
			if (kind == elf.R_X86_64_JMP_SLOT || kind == elf.R_X86_64_GLOB_DAT) &&
				symbol+symbolSize <= uint64(len(symbols)) && len(slots) < maxSlots {
				slots[binary.LittleEndian.Uint64(b)] = binary.LittleEndian.Uint32(symbols[symbol:])
			}
		})
	}
	return slots
}

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// stubSlot returns the address of the pointer through which the PLT stub at addr jumps. A stub is
// `jmp [rip+slot]`, possibly after an endbr64, after `mov r11d, index` in lld's stubs, and with
// the prefix bnd in old ones.
func stubSlot(code []byte, addr uint64) (uint64, bool) {
	n := 0
	if bytes.HasPrefix(code, endbr64) {
		n = len(endbr64)
	}
	if bytes.HasPrefix(code[n:], []byte{0x41, 0xbb}) && len(code) >= n+6 {
		n += 6
	}
	if bytes.HasPrefix(code[n:], []byte{0xf2, 0xff, 0x25}) {
		n++
	}
	if !bytes.HasPrefix(code[n:], []byte{0xff, 0x25}) || len(code) < n+6 {
		return 0, false
	}
	displacement := int64(int32(binary.LittleEndian.Uint32(code[n+2:])))
	return addr + uint64(n) + 6 + uint64(displacement), true
}
