package rig

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

const (
	// The image's load addresses. The mock does not load it, so any addresses that do not
	// overlap will do.
	textAddr = 0x5000
	dataAddr = 0xffb00000
)

// kernelImage returns the smallest kernel that the library's loader accepts. The loader
// requires a 32-bit little-endian RISC-V executable whose entry is the start of the first
// loadable segment; a second segment that starts with .data and whose load address is the
// end of the first; and relocations with their symbols, as left by ld --emit-relocs,
// because it moves the text itself.
func kernelImage() []byte {
	text := words(
		0xffb00537, // lui a0, %hi(x)
		0x00050513, // addi a0, a0, %lo(x)
		0x00008067, // ret
	)
	data := words(0) // x
	relocs := packed(
		elf.Rela32{Off: textAddr, Info: elf.R_INFO32(symX, uint32(elf.R_RISCV_HI20))},
		elf.Rela32{Off: textAddr + 4, Info: elf.R_INFO32(symX, uint32(elf.R_RISCV_LO12_I))},
	)
	var names strtab
	symbols := packed(
		elf.Sym32{},
		elf.Sym32{Name: names.add("_start"), Value: textAddr, Shndx: secText, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_NOTYPE)},
		elf.Sym32{Name: names.add("x"), Value: dataAddr, Shndx: secData, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_NOTYPE)},
	)

	type section struct {
		elf.Section32
		name string
		body []byte
	}
	var secNames strtab
	sections := []section{
		secNull: {},
		secText: {name: ".text", body: text, Section32: elf.Section32{
			Type: uint32(elf.SHT_PROGBITS), Flags: uint32(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: textAddr}},
		secData: {name: ".data", body: data, Section32: elf.Section32{
			Type: uint32(elf.SHT_PROGBITS), Flags: uint32(elf.SHF_ALLOC | elf.SHF_WRITE), Addr: dataAddr}},
		secRela: {name: ".rela.text", body: relocs, Section32: elf.Section32{
			Type: uint32(elf.SHT_RELA), Flags: uint32(elf.SHF_INFO_LINK), Link: secSymtab, Info: secText, Entsize: 12}},
		secSymtab: {name: ".symtab", body: symbols, Section32: elf.Section32{
			Type: uint32(elf.SHT_SYMTAB), Link: secStrtab, Info: 1 /* first global */, Entsize: elf.Sym32Size}},
		secStrtab:   {name: ".strtab", body: names.bytes(), Section32: elf.Section32{Type: uint32(elf.SHT_STRTAB)}},
		secShstrtab: {name: ".shstrtab", Section32: elf.Section32{Type: uint32(elf.SHT_STRTAB)}},
	}
	for i := range sections[1:] {
		s := &sections[i+1]
		s.Name, s.Addralign = secNames.add(s.name), 4
	}
	sections[secShstrtab].body = secNames.bytes()

	const ehsize, phentsize, shentsize, phnum = 52, 32, 40, 2
	off := uint32(ehsize + phnum*phentsize)
	for i := range sections[1:] {
		s := &sections[i+1]
		s.Off, s.Size = off, uint32(len(s.body))
		off += (s.Size + 3) &^ 3
	}
	segment := func(s section, paddr uint32, flags elf.ProgFlag) elf.Prog32 {
		return elf.Prog32{Type: uint32(elf.PT_LOAD), Off: s.Off, Vaddr: s.Addr, Paddr: paddr,
			Filesz: s.Size, Memsz: s.Size, Flags: uint32(flags), Align: 4}
	}
	header := elf.Header32{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_RISCV), Version: uint32(elf.EV_CURRENT),
		Entry: textAddr, Phoff: ehsize, Shoff: off,
		Ehsize: ehsize, Phentsize: phentsize, Phnum: phnum,
		Shentsize: shentsize, Shnum: uint16(len(sections)), Shstrndx: secShstrtab,
	}
	image := packed(header,
		segment(sections[secText], textAddr, elf.PF_R|elf.PF_X),
		segment(sections[secData], textAddr+uint32(len(text)), elf.PF_R|elf.PF_W),
	)
	for _, s := range sections[1:] {
		image = append(image, s.body...)
		for len(image)%4 != 0 {
			image = append(image, 0)
		}
	}
	for _, s := range sections {
		image = append(image, packed(s.Section32)...)
	}
	return image
}

// Indexes of the image's sections, and of the symbol that its text refers to.
const (
	secNull = iota
	secText
	secData
	secRela
	secSymtab
	secStrtab
	secShstrtab

	symX = 2
)

// packed encodes values one after the other in the target's layout.
func packed(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		// Writing to a bytes.Buffer fails only for a type without a fixed size.
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

func words(w ...uint32) []byte { return packed(w) }

// strtab builds an ELF string table.
type strtab struct{ b []byte }

func (t *strtab) add(s string) uint32 {
	if len(t.b) == 0 {
		t.b = []byte{0}
	}
	at := len(t.b)
	t.b = append(append(t.b, s...), 0)
	return uint32(at)
}

func (t *strtab) bytes() []byte { return t.b }
