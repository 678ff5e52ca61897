package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"sort"

	"ttmem/symbolize"
)

// ErrNoRows means that a file has no unwind information for its code.
var ErrNoRows = errors.New("no unwind information (.eh_frame)")

// ErrTooLarge means that a file's unwind information exceeds a limit.
var ErrTooLarge = errors.New("too much unwind information")

// Limits for hostile files.
const (
	// MaxFrames bounds the size of an .eh_frame, in bytes; the largest library of ttnn has
	// 3 MB, PyTorch's 16
	MaxFrames = 1 << 26
	// maxFunctionFrames bounds it when only functions are read; CPython has 0.5 MB
	maxFunctionFrames = 1 << 24
	// maxFDEs and maxCIEs bound its records, and maxRows those of a Table; PyTorch's
	// largest library has 340,000 FDEs and 2.7 million rows
	maxFDEs = 1 << 20
	maxCIEs = 1 << 16
	maxRows = 3 << 22
	// maxPage bounds the page numbers of a Table
	maxPage = 1<<32 - 1
	// maxIndex bounds the pages of a Table: 16 GiB of code. A file of any size can be sparse
	maxIndex = 1 << 22
)

// recordsToPause is the number of records between two pauses.
const recordsToPause = 1 << 9

// maxPages bounds the pages of the code of a file with size bytes: an index of 256 KB, or of a
// sixty-fourth of the file.
func maxPages(size uint64) uint64 { return min(1<<16+size/256, maxIndex) }

// Build builds the table of a file from its section .eh_frame or, if the file has no section
// headers, from the target of the segment PT_GNU_EH_FRAME. It returns ErrNoRows, ErrTooLarge,
// read errors, errors for addresses that do not fit into a table, and errors of pause. It omits
// damaged and unknown entries. Code that a Rule cannot describe is Unsupported.
//
// Where FDEs overlap, the one that begins later ends the earlier one, even past its own end; of
// those that begin at the same address, the first in the file counts. A search in the sorted
// table of .eh_frame_hdr gives the same result.
//
// Build calls pause, unless it is nil, about every millisecond, and ends with its error.
func Build(e *symbolize.ELF, pause func() error) (*Table, error) {
	f, err := findFrames(e, MaxFrames, pause)
	if err != nil {
		return nil, err
	}
	return f.build(executable(e.ProgramHeaders()), maxPages(e.Size()))
}

// build builds the table of the FDEs for the code in text.
func (f *frames) build(text spans, pages uint64) (*Table, error) {
	t := &Table{}
	m := &machine{frames: f}
	cies, fdes, err := f.sorted(m, text)
	if err != nil {
		return nil, err
	}
	if len(fdes) == 0 {
		return nil, ErrNoRows
	}
	first, end := fdes[0].start, fdes[len(fdes)-1].end
	if n := (end-1)>>PageShift - first>>PageShift + 1; n > pages {
		return nil, fmt.Errorf("code of %d pages, from %#x to %#x: more than %d", n, first, end, pages)
	}
	if (end-1)>>PageShift > maxPage {
		return nil, fmt.Errorf("code at %#x: beyond page %#x", end-1, uint64(maxPage))
	}
	out := newRows(t, first, end, min(len(f.data)/3, maxRows))
	for i := range fdes {
		if i%recordsToPause == 0 {
			if err := f.rest(); err != nil {
				return nil, err
			}
		}
		d := &fdes[i]
		m.run(out, &cies[d.cie], d)
		if i+1 < len(fdes) && d.end < fdes[i+1].start {
			out.put(d.end, Rule{})
		}
		if out.full {
			return nil, fmt.Errorf("%w: more than %d rows", ErrTooLarge, maxRows)
		}
	}
	out.finish(end)
	return t, nil
}

// sorted reads all records. It returns the FDEs of the code in text by address, without
// overlaps.
func (f *frames) sorted(m *machine, text spans) (cies []cie, fdes []fde, err error) {
	if cies, fdes, err = f.read(m, text); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(fdes, func(a, b fde) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.code, b.code))
	})
	fdes = slices.CompactFunc(fdes, func(a, b fde) bool { return a.start == b.start })
	for i := range max(len(fdes), 1) - 1 {
		fdes[i].end = min(fdes[i].end, fdes[i+1].start)
	}
	return cies, fdes, nil
}

// Functions are all functions that a file's .eh_frame describes, even in a stripped file. The
// split-off part of a function counts as a separate function.
type Functions struct{ fdes []fde }

// ReadFunctions reads the functions of a file; none if it has no unwind information.
func ReadFunctions(e *symbolize.ELF) (fs Functions) {
	if f, err := findFrames(e, maxFunctionFrames, nil); err == nil {
		_, fs.fdes, _ = f.sorted(&machine{frames: f}, executable(e.ProgramHeaders()))
	}
	return fs
}

// At returns the function that contains an address; false if there is none.
func (fs Functions) At(addr uint64) (start, end uint64, ok bool) {
	i := sort.Search(len(fs.fdes), func(i int) bool { return fs.fdes[i].start > addr }) - 1
	if i < 0 || addr >= fs.fdes[i].end {
		return 0, 0, false
	}
	return fs.fdes[i].start, fs.fdes[i].end, true
}

// findFrames finds a file's .eh_frame and reads it, if it has at most limit bytes.
func findFrames(e *symbolize.ELF, limit uint64, pause func() error) (*frames, error) {
	f := &frames{pause: pause}
	var header elf.ProgHeader
	for _, p := range e.ProgramHeaders() {
		if p.Type == elf.PT_GNU_EH_FRAME {
			header, f.hdr = p, p.Vaddr
			break
		}
	}
	section, ok := e.EHFrame()
	switch {
	case ok:
		f.addr = section.Addr
	case header.Type == 0:
		return nil, ErrNoRows
	default:
		if section, ok = f.follow(e, header); !ok {
			return nil, ErrNoRows
		}
	}
	if section.Size > limit {
		return nil, fmt.Errorf("%w: .eh_frame has %d bytes, more than %d", ErrTooLarge, section.Size, limit)
	}
	f.data = make([]byte, 0, min(section.Size, e.Size()))
	err := e.EachPart(section, func(part []byte) error {
		f.data = append(f.data, part...)
		return f.rest()
	})
	if err != nil {
		return nil, fmt.Errorf("reading .eh_frame: %w", err)
	}
	return f, nil
}

// follow finds the frames to which an .eh_frame_hdr points. The header does not have their end:
// they end with their segment or before the header itself, but not before as many FDEs as the
// header's table has.
func (f *frames) follow(e *symbolize.ELF, header elf.ProgHeader) (s symbolize.Section, ok bool) {
	b, err := e.Text(header.Vaddr, int(min(header.Filesz, 32)))
	if err != nil {
		return s, false
	}
	c := cursor{b: b}
	version, frames, count := c.u8(), c.u8(), c.u8()
	c.u8() // encoding of the table
	f.addr = c.pointer(frames, header.Vaddr, header.Vaddr)
	if c.bad || version != 1 {
		return s, false
	}
	if n := c.pointer(count, header.Vaddr, header.Vaddr); !c.bad {
		f.atLeast = n
	}
	s.Addr, f.ends = f.addr, true
	for _, p := range e.ProgramHeaders() {
		if p.Type != elf.PT_LOAD || s.Addr < p.Vaddr || s.Addr-p.Vaddr >= p.Filesz {
			continue
		}
		s.Offset = p.Off + (s.Addr - p.Vaddr)
		s.Size = p.Filesz - (s.Addr - p.Vaddr)
		if header.Vaddr > s.Addr {
			s.Size = min(s.Size, header.Vaddr-s.Addr)
		}
		if s.Offset >= e.Size() || s.Offset < p.Off {
			return s, false
		}
		s.Size = min(s.Size, e.Size()-s.Offset, MaxFrames)
		return s, true
	}
	return s, false
}
