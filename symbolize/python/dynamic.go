package python

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"ttmem/symbolize"
)

// dynamic returns the entries of the dynamic section by tag; nil if there is none.
func dynamic(e *symbolize.ELF) map[elf.DynTag]uint64 {
	const entry, maxEntries = 16, 512
	for _, p := range e.ProgramHeaders() {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		b, err := e.Text(p.Vaddr, int(min(p.Filesz, entry*maxEntries)))
		if err != nil {
			return nil
		}
		tags := map[elf.DynTag]uint64{}
		for ; len(b) >= entry; b = b[entry:] {
			tag := elf.DynTag(binary.LittleEndian.Uint64(b))
			if tag == elf.DT_NULL {
				break
			}
			tags[tag] = binary.LittleEndian.Uint64(b[8:])
		}
		return tags
	}
	return nil
}

// slotValue returns the address in the file that the pointer at vaddr will have at run
// time: from its relocation or, for a file loaded at its link address or with packed
// relocations (DT_RELR), from the content.
func slotValue(e *symbolize.ELF, vaddr uint64) (uint64, error) {
	const relaSize, maxSize = 24, 1 << 24
	tags := dynamic(e)
	if tags[elf.DT_RELA] != 0 && tags[elf.DT_RELASZ] <= maxSize {
		b, err := e.Text(tags[elf.DT_RELA], int(tags[elf.DT_RELASZ]))
		if err != nil {
			return 0, fmt.Errorf("reading relocations: %w", err)
		}
		for ; len(b) >= relaSize; b = b[relaSize:] {
			if binary.LittleEndian.Uint64(b) != vaddr {
				continue
			}
			info, addend := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
			switch kind := elf.R_X86_64(uint32(info)); kind {
			case elf.R_X86_64_RELATIVE:
				return addend, nil
			case elf.R_X86_64_64:
				s, err := read(e, tags[elf.DT_SYMTAB]+info>>32*elf.Sym64Size, elf.Sym64Size)
				if err != nil {
					return 0, fmt.Errorf("reading the symbol of a relocation: %w", err)
				}
				return binary.LittleEndian.Uint64(s[8:]) + addend, nil
			default:
				return 0, fmt.Errorf("unknown relocation %v at %#x", kind, vaddr)
			}
		}
	}
	b, err := read(e, vaddr, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// read returns exactly n bytes at a virtual address.
func read(e *symbolize.ELF, vaddr uint64, n int) ([]byte, error) {
	b, err := e.Text(vaddr, n)
	if err != nil {
		return nil, err
	}
	if len(b) < n {
		return nil, fmt.Errorf("address %#x: %d bytes, not %d", vaddr, len(b), n)
	}
	return b, nil
}
