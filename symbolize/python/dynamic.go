package python

import (
	"bytes"
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

// mayExport reports whether a file may define a symbol for others. It uses the file's hash
// table, as the dynamic linker does, which costs a few reads; reading all symbols of a
// library may take 50 ms. A file without a hash table may define anything.
func mayExport(e *symbolize.ELF, name string) bool {
	tags := dynamic(e)
	table, ok := tags[elf.DT_GNU_HASH]
	if !ok {
		return true
	}
	// the number of buckets, the first symbol, the words in the filter
	head, err := read(e, table, 16)
	if err != nil {
		return true
	}
	buckets, first := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	words, shift := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if buckets == 0 || words == 0 {
		return true
	}
	h := gnuHash(name)
	filter, err := read(e, table+16+uint64(h/64%words)*8, 8)
	if err != nil {
		return true
	}
	if word := binary.LittleEndian.Uint64(filter); word>>(h%64)&1 == 0 || word>>(h>>(shift&31)%64)&1 == 0 {
		return false
	}
	bucketsAt := table + 16 + uint64(words)*8
	b, err := read(e, bucketsAt+uint64(h%buckets)*4, 4)
	if err != nil {
		return true
	}
	const maxChain = 1024
	chainsAt := bucketsAt + uint64(buckets)*4
	symbol := binary.LittleEndian.Uint32(b)
	if symbol < first {
		return false // an empty bucket
	}
	for range maxChain {
		b, err := read(e, chainsAt+uint64(symbol-first)*4, 4)
		if err != nil {
			return true
		}
		chain := binary.LittleEndian.Uint32(b)
		if chain|1 == h|1 && symbolName(e, tags, symbol, len(name)) == name {
			return true
		}
		if chain&1 != 0 {
			return false
		}
		symbol++
	}
	return true
}

// symbolName returns the name of a symbol in the dynamic table, if its length is n.
func symbolName(e *symbolize.ELF, tags map[elf.DynTag]uint64, symbol uint32, n int) string {
	b, err := read(e, tags[elf.DT_SYMTAB]+uint64(symbol)*elf.Sym64Size, 4)
	if err != nil {
		return ""
	}
	b, err = read(e, tags[elf.DT_STRTAB]+uint64(binary.LittleEndian.Uint32(b)), n+1)
	if err != nil || bytes.IndexByte(b, 0) != n {
		return ""
	}
	return string(b[:n])
}

func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
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

// executable reports whether a virtual address lies in the code of a file.
func executable(e *symbolize.ELF, vaddr uint64) bool {
	for _, p := range e.ProgramHeaders() {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			return true
		}
	}
	return false
}
