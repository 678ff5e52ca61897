package rig

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestKernelImage(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(kernelImage()))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(f.Class, elf.ELFCLASS32))
	qt.Check(t, qt.Equals(f.Data, elf.ELFDATA2LSB))
	qt.Check(t, qt.Equals(f.Machine, elf.EM_RISCV))
	qt.Check(t, qt.Equals(f.Type, elf.ET_EXEC))

	t.Run("segments", func(t *testing.T) {
		qt.Assert(t, qt.HasLen(f.Progs, 2))
		text, data := f.Progs[0], f.Progs[1]
		qt.Check(t, qt.Equals(f.Entry, text.Vaddr))
		qt.Check(t, qt.Equals(data.Paddr, text.Paddr+text.Filesz))
		qt.Check(t, qt.Equals(data.Vaddr, f.Section(".data").Addr))
		for _, p := range f.Progs {
			qt.Check(t, qt.Equals(p.Type, elf.PT_LOAD))
			qt.Check(t, qt.Equals((p.Off|p.Vaddr|p.Paddr)%4, 0))
		}
	})

	t.Run("relocations", func(t *testing.T) {
		rela, text := f.Section(".rela.text"), f.Section(".text")
		qt.Check(t, qt.Equals(f.Sections[rela.Info], text))
		qt.Check(t, qt.Equals(f.Sections[rela.Link].Type, elf.SHT_SYMTAB))
		raw, err := rela.Data()
		qt.Assert(t, qt.IsNil(err))
		symbols, err := f.Symbols()
		qt.Assert(t, qt.IsNil(err))

		var types []elf.R_RISCV
		for b := raw; len(b) > 0; b = b[12:] {
			off, info := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
			qt.Check(t, qt.IsTrue(uint64(off)-text.Addr < text.Size))
			qt.Check(t, qt.Equals(symbols[elf.R_SYM32(info)-1].Value, f.Section(".data").Addr))
			types = append(types, elf.R_RISCV(elf.R_TYPE32(info)))
		}
		qt.Check(t, qt.DeepEquals(types, []elf.R_RISCV{elf.R_RISCV_HI20, elf.R_RISCV_LO12_I}))
	})
}
