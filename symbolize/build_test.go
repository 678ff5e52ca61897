package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// testSymbol is a symbol in a test file.
type testSymbol struct {
	name    string
	addr    uint64
	size    uint64
	kind    elf.SymType
	defined bool
}

// testFile describes an ELF file. Its code lies at textAddr, its stubs at
// stubsAddr, and its GOT would lie at slotsAddr.
type testFile struct {
	buildID []byte
	symtab  []testSymbol
	dynsym  []testSymbol
	// stubs is the content of .plt; slots are the numbers of the symbols in
	// dynsym, from 0, that the GOT's entries get the addresses of.
	stubs []byte
	slots []int
	text  []byte
}

const (
	textAddr  = 0x11000
	stubsAddr = 0x12000
	slotsAddr = 0x20000
)

// image returns the file: headers, two loaded segments, sections.
func (f *testFile) image() []byte {
	const textOffset, stubsOffset = 0x1000, 0x2000
	body := make([]byte, 0x3000)
	copy(body[textOffset:], f.text)
	copy(body[stubsOffset:], f.stubs)

	var names bytes.Buffer
	names.WriteByte(0)
	var sections []elf.Section64
	sections = append(sections, elf.Section64{})
	add := func(name string, kind elf.SectionType, addr uint64, content []byte, link uint32) uint32 {
		s := elf.Section64{
			Name: uint32(names.Len()), Type: uint32(kind), Addr: addr,
			Off: uint64(len(body)), Size: uint64(len(content)), Link: link,
		}
		names.WriteString(name + "\x00")
		body = append(body, content...)
		sections = append(sections, s)
		return uint32(len(sections) - 1)
	}
	symbols := func(list []testSymbol) (table, strings []byte) {
		strings = []byte{0}
		table = make([]byte, symbolSize)
		for _, s := range list {
			raw := elf.Sym64{
				Name: uint32(len(strings)), Info: byte(elf.STB_GLOBAL)<<4 | byte(s.kind), Value: s.addr, Size: s.size,
			}
			if s.defined {
				raw.Shndx = 1
			}
			table, _ = binary.Append(table, binary.LittleEndian, raw)
			strings = append(append(strings, s.name...), 0)
		}
		return table, strings
	}
	if f.symtab != nil {
		table, strings := symbols(f.symtab)
		add(".symtab", elf.SHT_SYMTAB, 0, table, add(".strtab", elf.SHT_STRTAB, 0, strings, 0))
	}
	if f.dynsym != nil {
		table, strings := symbols(f.dynsym)
		add(".dynsym", elf.SHT_DYNSYM, 0, table, add(".dynstr", elf.SHT_STRTAB, 0, strings, 0))
	}
	if f.slots != nil {
		var rela []byte
		for i, s := range f.slots {
			rela, _ = binary.Append(rela, binary.LittleEndian, elf.Rela64{
				Off: slotsAddr + uint64(i)*8, Info: uint64(s+1)<<32 | uint64(elf.R_X86_64_JMP_SLOT),
			})
		}
		add(".rela.plt", elf.SHT_RELA, 0, rela, 0)
		at := add(".plt", elf.SHT_PROGBITS, stubsAddr, nil, 0)
		sections[at].Off, sections[at].Size = stubsOffset, uint64(len(f.stubs))
	}
	if f.buildID != nil {
		note, _ := binary.Append(nil, binary.LittleEndian, []uint32{4, uint32(len(f.buildID)), 3})
		note = append(append(note, "GNU\x00"...), f.buildID...)
		add(".note.gnu.build-id", elf.SHT_NOTE, 0, note, 0)
	}
	shstr := add(".shstrtab", elf.SHT_STRTAB, 0, nil, 0)
	sections[shstr].Size = uint64(names.Len())
	body = append(body, names.Bytes()...)

	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: headerSize, Phnum: 2,
		Shoff: uint64(len(body)), Shnum: uint16(len(sections)), Shstrndx: uint16(shstr),
		Ehsize: headerSize, Phentsize: programSize, Shentsize: sectionSize,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	head, _ := binary.Append(nil, binary.LittleEndian, h)
	head, _ = binary.Append(head, binary.LittleEndian, []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: 0xff0, Memsz: 0xff0},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: 0xff0, Vaddr: 0x10ff0, Filesz: 0x1fff, Memsz: 0x3000},
	})
	copy(body, head)
	body, _ = binary.Append(body, binary.LittleEndian, sections)
	return body
}

// jmp encodes `jmp [rip+…]` at an address, to the n-th slot.
func jmp(at uint64, n int) []byte {
	b, _ := binary.Append([]byte{0xff, 0x25}, binary.LittleEndian, int32(slotsAddr+n*8-int(at)-6))
	return b
}

// sample has one of each kind of symbol and stub.
func sample() *testFile {
	fn := func(name string, addr, size uint64) testSymbol {
		return testSymbol{name, addr, size, elf.STT_FUNC, true}
	}
	f := &testFile{
		buildID: []byte{0xde, 0xad, 0xbe, 0xef},
		text:    []byte{0x48, 0x8b, 0x47, 0x58, 0xc3},
		symtab: []testSymbol{
			fn("_ZN2tt8tt_metal6Buffer6createEv", textAddr, 0x20),
			fn("_ZN2tt8tt_metal6BufferD1Ev", textAddr+0x20, 0x10),
			fn("_ZN2tt8tt_metal6BufferD2Ev", textAddr+0x20, 0x10),
			fn("_ZN2tt8tt_metal6BufferD2Ev.cold", textAddr+0x40, 0x10),
			fn("_ZN2tt8tt_metal6Buffer6createEv$plt", stubsAddr+0x20, 0x10),
			fn("inner", textAddr+0x8, 4),
			{"_ZN2tt8tt_metal6Buffer14next_unique_idE", 0x20100, 8, elf.STT_OBJECT, true},
			{"_ZN2tt8tt_metal6Buffer8declaredEv", 0, 0, elf.STT_FUNC, false},
			{"file.cpp", 0, 0, elf.STT_FILE, true},
		},
		dynsym: []testSymbol{
			{"__cxa_throw", 0, 0, elf.STT_FUNC, false},
			fn("_ZN2tt8tt_metal6Buffer6createEv", textAddr, 0x20),
			fn("__cxa_throw_bad_array_new_length", 0, 0),
		},
		slots: []int{2, 0, 1},
		stubs: make([]byte, 0x50),
	}
	// lld's, then the classic form, then with endbr64, then with bnd as well
	copy(f.stubs[0x10:], append([]byte{0x41, 0xbb, 0, 0, 0, 0}, jmp(stubsAddr+0x16, 0)...))
	copy(f.stubs[0x20:], jmp(stubsAddr+0x20, 1))
	copy(f.stubs[0x30:], append(bytes.Clone(endbr64), jmp(stubsAddr+0x34, 2)...))
	copy(f.stubs[0x40:], append(append(bytes.Clone(endbr64), 0xf2), jmp(stubsAddr+0x45, 1)...))
	return f
}
