package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

const pageMask = 0xfff

func (e *ELF) readSegments(h *elf.Header64) error {
	if h.Phnum == 0 {
		return nil
	}
	if h.Phentsize != programSize {
		return fmt.Errorf("program headers of %d bytes, not %d", h.Phentsize, programSize)
	}
	if h.Phnum > maxSegments {
		return fmt.Errorf("%d program headers, more than %d", h.Phnum, maxSegments)
	}
	b, err := e.read(h.Phoff, uint64(h.Phnum)*programSize, maxSegments*programSize)
	if err != nil {
		return fmt.Errorf("reading program headers: %w", err)
	}
	raw := make([]elf.Prog64, h.Phnum)
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, raw); err != nil {
		return err
	}
	for _, p := range raw {
		e.headers = append(e.headers, elf.ProgHeader{
			Type: elf.ProgType(p.Type), Flags: elf.ProgFlag(p.Flags), Off: p.Off, Vaddr: p.Vaddr,
			Paddr: p.Paddr, Filesz: p.Filesz, Memsz: p.Memsz, Align: p.Align,
		})
	}
	return nil
}

// ProgramHeaders returns the program headers, loadable and other. The caller must not
// modify them.
func (e *ELF) ProgramHeaders() []elf.ProgHeader { return e.headers }

// InCode reports whether a virtual address lies in an executable segment.
func (e *ELF) InCode(vaddr uint64) bool {
	return slices.ContainsFunc(e.headers, func(p elf.ProgHeader) bool {
		return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz
	})
}

// FileOffset converts a virtual address to a file offset, which uprobes need; false if the file
// has no loaded segment there.
func (e *ELF) FileOffset(vaddr uint64) (uint64, bool) {
	offset, _, ok := e.locate(vaddr)
	return offset, ok
}

// locate returns the file offset of a virtual address, and the bytes of the file that
// follow in the same segment.
func (e *ELF) locate(vaddr uint64) (offset, left uint64, ok bool) {
	for _, p := range e.headers {
		if p.Type != elf.PT_LOAD || vaddr < p.Vaddr || vaddr-p.Vaddr >= p.Filesz {
			continue
		}
		in := vaddr - p.Vaddr
		if p.Off > uint64(e.size) || in >= uint64(e.size)-p.Off {
			return 0, 0, false
		}
		return p.Off + in, min(p.Filesz-in, uint64(e.size)-p.Off-in), true
	}
	return 0, 0, false
}

// Text returns n bytes of the file at a virtual address, before relocation; fewer if the
// segment's part in the file ends earlier.
func (e *ELF) Text(vaddr uint64, n int) ([]byte, error) {
	offset, left, ok := e.locate(vaddr)
	if !ok {
		return nil, fmt.Errorf("address %#x: %w", vaddr, io.ErrUnexpectedEOF)
	}
	return e.read(offset, min(uint64(max(n, 0)), left), maxText)
}

// Bytes is Text of exactly n bytes.
func (e *ELF) Bytes(vaddr uint64, n int) ([]byte, error) {
	b, err := e.Text(vaddr, n)
	if err == nil && len(b) < n {
		err = fmt.Errorf("address %#x: %d bytes, not %d", vaddr, len(b), n)
	}
	return b, err
}

// Bias returns the difference between addresses in a process and in the file, for a process
// that maps the file from mapOffset on at mapStart (a line of /proc/PID/maps); false if the
// file has no segment there.
func (e *ELF) Bias(mapStart, mapOffset uint64) (uint64, bool) {
	var best *elf.ProgHeader
	for i := range e.headers {
		p := &e.headers[i]
		first := p.Off &^ pageMask
		if p.Type != elf.PT_LOAD || p.Filesz == 0 || mapOffset < first || mapOffset-first >= p.Filesz+(p.Off-first) {
			continue
		}
		// A page of the file may belong to the end of one segment and to the
		// start of the next. A mapping starts where its segment does.
		if best == nil || first == mapOffset {
			best = p
		}
	}
	if best == nil {
		return 0, false
	}
	bias := mapStart - (best.Vaddr + mapOffset - best.Off)
	return bias, bias&pageMask == 0
}
