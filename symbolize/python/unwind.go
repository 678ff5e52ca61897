package python

import (
	"debug/elf"
	"encoding/binary"
	"sort"

	"ttmem/symbolize"
)

// unwind is the table of functions that a file has for unwinding (.eh_frame_hdr): it has
// all functions, even in a stripped file, and the split-off part of a function as one of
// its own.
type unwind struct {
	e    *symbolize.ELF
	addr uint64
	// table is pairs of i32, by address: the start of a function and its description, both
	// relative to addr
	table []byte
}

// unwindEntry is the size of a table entry, in bytes.
const unwindEntry = 8

// readUnwind reads the table of a file; false if there is none in the usual form, and then
// unwind has no functions.
func readUnwind(e *symbolize.ELF) (unwind, bool) {
	for _, p := range e.ProgramHeaders() {
		if p.Type != elf.PT_GNU_EH_FRAME {
			continue
		}
		const head, maxSize = 12, 1 << 23
		b, err := e.Text(p.Vaddr, int(min(p.Filesz, maxSize)))
		// version 1; 4 signed bytes relative to the field, a count of 4 bytes, 4 signed
		// bytes relative to the start: the form that all linkers write
		if err != nil || len(b) < head || [4]byte(b) != [4]byte{1, 0x1b, 0x03, 0x3b} {
			return unwind{}, false
		}
		count := uint64(binary.LittleEndian.Uint32(b[8:]))
		b = b[head:]
		return unwind{e, p.Vaddr, b[:min(count, uint64(len(b))/unwindEntry)*unwindEntry]}, true
	}
	return unwind{}, false
}

// at returns the function, or part of one, that contains an address; false if there is
// none, or its description is not in the usual form.
func (u unwind) at(addr uint64) (Range, bool) {
	field := func(i, offset int) uint64 {
		return u.addr + relative(u.table[i*unwindEntry+offset:])
	}
	i := sort.Search(len(u.table)/unwindEntry, func(i int) bool { return field(i, 0) > addr }) - 1
	if i < 0 {
		return Range{}, false
	}
	// A description has its length, the distance to its common part, the start of the
	// function relative to that field, and its size. Each field has 4 bytes if the start
	// equals the one in the table.
	const beginning, size = 8, 12
	at := field(i, 4)
	b, err := read(u.e, at, 16)
	if err != nil {
		return Range{}, false
	}
	r := Range{Start: field(i, 0)}
	r.End = r.Start + uint64(binary.LittleEndian.Uint32(b[size:]))
	if at+beginning+relative(b[beginning:]) != r.Start || !r.Contains(addr) {
		return Range{}, false
	}
	return r, true
}

// relative decodes the signed 4-byte number at the start of b.
func relative(b []byte) uint64 { return uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }
