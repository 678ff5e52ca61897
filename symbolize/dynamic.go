package symbolize

import (
	"debug/elf"
	"encoding/binary"
)

// eachDynamic calls f with the entries of the segment PT_DYNAMIC.
func (e *ELF) eachDynamic(f func(tag elf.DynTag, value uint64)) {
	for _, p := range e.headers {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		b, _ := e.read(p.Off, p.Filesz&^15, maxDynamic)
		for ; len(b) > 0 && binary.LittleEndian.Uint64(b) != uint64(elf.DT_NULL); b = b[16:] {
			f(elf.DynTag(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:]))
		}
		return
	}
}

// Needed returns the names of the libraries that a file needs, and the folders, separated by colons, in which the
// dynamic linker looks for them before the system's.
func (e *ELF) Needed() (names []string, folders string) {
	table, texts := uint64(0), make(map[elf.DynTag][]uint64)
	e.eachDynamic(func(tag elf.DynTag, value uint64) {
		switch tag {
		case elf.DT_STRTAB:
			table = value
		case elf.DT_NEEDED, elf.DT_RPATH, elf.DT_RUNPATH:
			texts[tag] = append(texts[tag], value)
		}
	})
	text := func(at uint64) string {
		b, _ := e.Text(table+at, maxName)
		return cString(string(b), 0)
	}
	for _, at := range texts[elf.DT_NEEDED][:min(len(texts[elf.DT_NEEDED]), maxNeeded)] {
		names = append(names, text(at))
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} { // the last one counts
		for _, at := range texts[tag][:min(len(texts[tag]), 1)] {
			folders = text(at)
		}
	}
	return names, folders
}

// maxNeeded bounds the libraries that a file needs.
const maxNeeded = 256

// readDynamic finds the dynamic symbols and the relocations as the dynamic linker does, by the segment PT_DYNAMIC:
// of a file whose section headers were removed. The stubs, of which the segment has nothing, are found by their code.
func (e *ELF) readDynamic() {
	tags := make(map[elf.DynTag]uint64)
	e.eachDynamic(func(tag elf.DynTag, value uint64) { tags[tag] = value })
	section := func(addr, size uint64) (s Section) {
		if offset, left, ok := e.locate(addr); ok && size <= left {
			s = Section{addr, offset, size}
		}
		return s
	}
	e.strings[tableDynsym] = section(tags[elf.DT_STRTAB], tags[elf.DT_STRSZ])
	e.symbols[tableDynsym] = section(tags[elf.DT_SYMTAB], symbolSize*e.countDynamic(tags))
	for _, table := range [][2]elf.DynTag{{elf.DT_RELA, elf.DT_RELASZ}, {elf.DT_JMPREL, elf.DT_PLTRELSZ}} {
		if s := section(tags[table[0]], tags[table[1]]); s.Size > 0 {
			e.relocations = append(e.relocations, s)
		}
	}
}

// maxDynamic bounds the bytes of the segment PT_DYNAMIC; the libraries of ttnn have less than 1 KB.
const maxDynamic = 1 << 16

// countDynamic returns the number of dynamic symbols, which only the hash tables have: the older kind as such, the
// GNU kind by the last chain, which ends with an odd hash.
func (e *ELF) countDynamic(tags map[elf.DynTag]uint64) uint64 {
	word := func(addr uint64) uint64 {
		b, err := e.Bytes(addr, 4)
		if err != nil {
			return 0
		}
		return uint64(binary.LittleEndian.Uint32(b))
	}
	if hash := tags[elf.DT_HASH]; hash != 0 {
		return min(word(hash+4), maxSymbols)
	}
	hash := tags[elf.DT_GNU_HASH]
	if hash == 0 {
		return 0
	}
	buckets, first, bloom := word(hash), word(hash+4), word(hash+8)
	table := hash + 16 + 8*bloom
	b, err := e.Bytes(table, int(4*min(buckets, maxSymbols)))
	if err != nil {
		return 0
	}
	last := uint64(0)
	for ; len(b) > 0; b = b[4:] {
		last = max(last, uint64(binary.LittleEndian.Uint32(b)))
	}
	if last < first {
		return min(first, maxSymbols) // none can be found
	}
	for at := last - first; at < last-first+maxChain; at++ {
		b, err := e.Bytes(table+4*buckets+4*at, 4)
		if err != nil {
			return 0
		}
		if b[0]&1 != 0 {
			return min(first+at+1, maxSymbols)
		}
	}
	return 0
}

// searchStubs finds stubs in all code, for a file whose section headers were removed: a jump through a slot of the
// dynamic linker's, where code is aligned as stubs are.
func (e *ELF) searchStubs(slots, stubs map[uint64]uint32) {
	for _, p := range e.headers {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		at := (p.Vaddr + stubAlign - 1) &^ (stubAlign - 1)
		if p.Filesz < at-p.Vaddr {
			continue
		}
		code := Section{Offset: p.Off + at - p.Vaddr, Size: min(p.Filesz-(at-p.Vaddr), maxSearched)}
		_ = e.EachPart(code, func(part []byte) error { // without them names are missing
			findStubs(part, at, slots, stubs)
			at += uint64(len(part))
			return nil
		})
	}
}

const (
	// maxChain bounds the symbols of one bucket of a hash table; those of ttnn have up to 12.
	maxChain = 1 << 12
	// maxSearched bounds the code that is searched for stubs; the largest library of ttnn has 33 MB.
	maxSearched = 1 << 26
	stubAlign   = 16
)
