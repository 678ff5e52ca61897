package tracetest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"
)

// Unsectioned returns a library without section headers, as some tools leave it: the dynamic linker needs none.
func Unsectioned(library []byte) []byte {
	b := bytes.Clone(library)
	clear(b[0x28:0x30]) // e_shoff
	clear(b[0x3a:0x40]) // e_shentsize, e_shnum, e_shstrndx
	return b
}

// Stripped returns a library without .symtab, as `strip` leaves it, that exports only what exports allows, as a
// linker's version script does. What it does not export any more, it uses itself: the symbol has no name, and is hidden.
func Stripped(t testing.TB, library []byte, exports func(name string) bool) []byte {
	t.Helper()
	b := bytes.Clone(library)
	file, err := elf.NewFile(bytes.NewReader(b))
	qt.Assert(t, qt.IsNil(err))
	if s := file.Section(".symtab"); s != nil {
		clear(b[s.Offset : s.Offset+s.Size])
		names := file.Section(".strtab")
		clear(b[names.Offset : names.Offset+names.Size])
	}
	symbols, names := file.SectionByType(elf.SHT_DYNSYM), file.Section(".dynstr")
	used := make([]bool, names.Size) // names may share their ends
	keep := func(at uint64) {
		for ; b[names.Offset+at] != 0; at++ {
			used[at] = true
		}
	}
	const size = 24
	for at := symbols.Offset + size; at < symbols.Offset+symbols.Size; at += size {
		raw := b[at : at+size]
		name := uint64(binary.LittleEndian.Uint32(raw))
		text, _, _ := bytes.Cut(b[names.Offset+name:], []byte{0})
		defined := elf.SectionIndex(binary.LittleEndian.Uint16(raw[6:])) != elf.SHN_UNDEF
		if !defined || elf.ST_TYPE(raw[4]) == elf.STT_TLS || exports(string(text)) {
			keep(name)
			continue
		}
		clear(raw[:4])
		raw[5] = byte(elf.STV_HIDDEN)
	}
	dynamic := file.Section(".dynamic")
	for at := dynamic.Offset; at < dynamic.Offset+dynamic.Size; at += 16 {
		switch elf.DynTag(binary.LittleEndian.Uint64(b[at:])) {
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH:
			keep(binary.LittleEndian.Uint64(b[at+8:]))
		}
	}
	versions := file.SectionByType(elf.SHT_GNU_VERNEED)
	for next := versions.Offset; ; { // each file, and each of its versions
		keep(uint64(binary.LittleEndian.Uint32(b[next+4:])))
		for one := next + uint64(binary.LittleEndian.Uint32(b[next+8:])); ; {
			keep(uint64(binary.LittleEndian.Uint32(b[one+8:])))
			step := uint64(binary.LittleEndian.Uint32(b[one+12:]))
			if one += step; step == 0 {
				break
			}
		}
		step := uint64(binary.LittleEndian.Uint32(b[next+12:]))
		if next += step; step == 0 {
			break
		}
	}
	for i := range used {
		if !used[i] {
			b[names.Offset+uint64(i)] = 0
		}
	}
	return b
}

// Mentioned returns the names of the dynamic symbols of a file, its own and those of others.
func Mentioned(t testing.TB, path string, into map[string]bool) {
	t.Helper()
	file, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	qt.Assert(t, qt.IsNil(err))
	for _, s := range symbols {
		into[s.Name] = true
	}
}
