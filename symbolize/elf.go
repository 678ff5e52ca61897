// Package symbolize gives names to addresses: it reads the symbols, segments
// and identity of ELF files.
// It is not part of ttmem's Go library: it changes without notice.
package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// ErrNotELF means that a file is not an ELF file for x86-64.
var ErrNotELF = errors.New("not an ELF file for x86-64")

// ELF is an opened ELF file for x86-64. Opening reads the headers only; symbols are read on
// first use. It is safe for concurrent use.
//
// Files may be truncated or hostile: debug/elf is used for the definitions, but not for
// reading, because it inflates compressed sections of any claimed size.
type ELF struct {
	r       io.ReaderAt
	size    int64
	file    *os.File // nil if another reader was given
	headers []elf.ProgHeader
	buildID string
	notes   int // number of notes read

	hasSections bool
	// symbols are the symbol tables, and strings their names, by table bit
	symbols, strings [2]Section
	// stubs are the sections of executable PLT stubs; relocations are the sections whose entries
	// fill the stubs' slots
	stubs, relocations []Section
	// ehFrame describes how to unwind the code, and constants has the names of types
	ehFrame, constants Section
	// debugInfo is true if the file has DWARF; debugLink names a file that has it
	debugInfo bool
	debugLink Section

	// built on first use
	indexing sync.Mutex
	index    indexes
}

// indexes find functions by name and by address, and for the address of a stub the offset of the
// called function's name.
type indexes struct {
	names *namesIndex
	funcs []function
	plt   map[uint64]uint32
}

// Section is the position of a section: virtual address, file offset and size, in bytes.
type Section struct {
	Addr, Offset, Size uint64
}

// the sizes of the structures of a 64-bit ELF file, in bytes
const (
	headerSize  = 64
	programSize = 56
	sectionSize = 64
	symbolSize  = 24
	relaSize    = 24
)

// shtUnwind is the type that some linkers use for .eh_frame instead of SHT_PROGBITS:
// SHT_X86_64_UNWIND of the x86-64 psABI.
const shtUnwind elf.SectionType = 0x70000001

// Limits for hostile files: a sparse one claims terabytes and takes no space.
const (
	maxSegments     = 1 << 8
	maxSections     = 1 << 14
	maxSectionNames = 1 << 20
	maxNote         = 1 << 16
	maxNotes        = 32
	// maxNames bounds the names of a file's symbols, and maxSymbols their number; the
	// largest library of ttnn has 17 MB of names, of 80,000 symbols, PyTorch's 550,000
	maxNames   = 1 << 26
	maxSymbols = 1 << 21
	// maxImports bounds the dynamic symbols, maxRelocations the entries of a relocation
	// section, maxSlots the slots that they fill, and maxStubs the bytes of a section of
	// stubs; the largest known libraries have 73,000, 330,000, 25,000 and 190 KB
	maxImports     = 1 << 19
	maxRelocations = 1 << 21
	maxSlots       = 1 << 17
	maxStubs       = 1 << 21
	maxText        = 1 << 24
	maxName        = 1 << 15
)

// Open opens the ELF file at path.
func Open(path string) (*ELF, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return OpenFile(f)
}

// OpenFile reads an ELF file and takes ownership of it. It closes the file on error.
func OpenFile(f *os.File) (*ELF, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var e *ELF
	if err == nil {
		e, err = New(f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	e.file = f
	return e, nil
}

// File returns the opened file; nil if New was given another reader.
func (e *ELF) File() *os.File { return e.file }

// New reads an ELF file of size bytes through r. The caller closes r, after Close.
func New(r io.ReaderAt, size int64) (*ELF, error) {
	e := &ELF{r: r, size: size}
	if err := e.readHeaders(); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *ELF) names() *namesIndex {
	e.indexing.Lock()
	defer e.indexing.Unlock()
	if e.index.names == nil {
		e.index.names = e.indexNames()
	}
	return e.index.names
}

func (e *ELF) funcs() []function {
	e.indexing.Lock()
	defer e.indexing.Unlock()
	if e.index.funcs == nil {
		e.index.funcs = e.indexFunctions()
	}
	return e.index.funcs
}

func (e *ELF) plt() map[uint64]uint32 {
	e.indexing.Lock()
	defer e.indexing.Unlock()
	if e.index.plt == nil {
		e.index.plt = e.indexPLT()
	}
	return e.index.plt
}

// Forget releases the memory of the indexes, which are built again when they are needed.
func (e *ELF) Forget() {
	e.indexing.Lock()
	e.index = indexes{}
	e.indexing.Unlock()
}

// Close closes the file if Open or OpenFile opened it.
func (e *ELF) Close() error {
	if e.file != nil {
		return e.file.Close()
	}
	return nil
}

// BuildID returns the GNU build ID in hex, "" if the file has none.
func (e *ELF) BuildID() string { return e.buildID }

func (e *ELF) readHeaders() error {
	b, err := e.read(0, headerSize, headerSize)
	if err != nil {
		return ErrNotELF
	}
	if !bytes.HasPrefix(b, []byte(elf.ELFMAG)) || elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Data(b[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return ErrNotELF
	}
	var h elf.Header64
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, &h); err != nil {
		return err
	}
	if elf.Machine(h.Machine) != elf.EM_X86_64 {
		return ErrNotELF
	}
	if t := elf.Type(h.Type); t != elf.ET_DYN && t != elf.ET_EXEC {
		return fmt.Errorf("%w: neither a library nor a program", ErrNotELF)
	}
	if err := e.readSegments(&h); err != nil {
		return err
	}
	if err := e.readSections(&h); err != nil {
		return err
	}
	if e.buildID == "" {
		for _, p := range e.headers {
			if p.Type == elf.PT_NOTE && e.buildID == "" {
				e.buildID = e.findBuildID(p.Off, p.Filesz)
			}
		}
	}
	return nil
}

func (e *ELF) readSections(h *elf.Header64) error {
	if h.Shoff == 0 {
		e.readDynamic() // a file without symbols is valid
		return nil
	}
	e.hasSections = true
	if h.Shentsize != sectionSize {
		return fmt.Errorf("section headers of %d bytes, not %d", h.Shentsize, sectionSize)
	}
	// a file with more sections than fit into the header has too many anyway
	count, names := uint64(h.Shnum), uint64(h.Shstrndx)
	if count > maxSections {
		return fmt.Errorf("%d sections, more than %d", count, maxSections)
	}
	b, err := e.read(h.Shoff, count*sectionSize, maxSections*sectionSize)
	if err != nil {
		return fmt.Errorf("reading section headers: %w", err)
	}
	sections := make([]elf.Section64, count)
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, sections); err != nil {
		return err
	}
	var shstr []byte
	if names < count && sections[names].Size <= maxSectionNames {
		// without section names only the PLT cannot be found
		shstr, _ = e.read(sections[names].Off, sections[names].Size, maxSectionNames)
	}
	e.keepSections(sections, string(shstr))
	return nil
}

// keepSections stores the useful sections. Only the first of each kind is used, so that
// many headers for the same bytes cost nothing.
func (e *ELF) keepSections(sections []elf.Section64, names string) {
	keep := func(to *Section, i uint32) {
		if to.Size == 0 && int(i) < len(sections) && elf.SectionType(sections[i].Type) != elf.SHT_NOBITS {
			*to = Section{sections[i].Addr, sections[i].Off, sections[i].Size}
		}
	}
	add := func(to *[]Section, i, most int) {
		if len(*to) < most {
			*to = append(*to, Section{})
			keep(&(*to)[len(*to)-1], uint32(i))
		}
	}
	for i, s := range sections {
		name := cString(names, s.Name)
		switch kind := elf.SectionType(s.Type); {
		case kind == elf.SHT_SYMTAB && e.symbols[tableSymtab].Size == 0:
			keep(&e.symbols[tableSymtab], uint32(i))
			keep(&e.strings[tableSymtab], s.Link)
		case kind == elf.SHT_DYNSYM && e.symbols[tableDynsym].Size == 0:
			keep(&e.symbols[tableDynsym], uint32(i))
			keep(&e.strings[tableDynsym], s.Link)
		case kind == elf.SHT_RELA && (name == ".rela.plt" || name == ".rela.dyn"):
			add(&e.relocations, i, 2)
		case kind == elf.SHT_NOTE && e.buildID == "":
			e.buildID = e.findBuildID(s.Off, s.Size)
		case kind != elf.SHT_PROGBITS && kind != shtUnwind:
		case strings.HasPrefix(name, ".plt"):
			add(&e.stubs, i, 3)
		case name == ".eh_frame":
			keep(&e.ehFrame, uint32(i))
		case name == ".rodata":
			keep(&e.constants, uint32(i))
		case name == ".gnu_debuglink":
			keep(&e.debugLink, uint32(i))
		case name == ".debug_info", name == ".zdebug_info":
			e.debugInfo = true
		}
	}
}

// findBuildID searches the notes in a part of the file for the build ID.
func (e *ELF) findBuildID(offset, size uint64) string {
	if e.notes++; e.notes > maxNotes {
		return ""
	}
	b, err := e.read(offset, size, maxNote)
	if err != nil {
		return ""
	}
	const ntGNUBuildID = 3
	for len(b) >= 12 {
		name, desc := uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
		kind := binary.LittleEndian.Uint32(b[8:])
		b = b[12:]
		end := (name+3)&^3 + desc
		if end > uint64(len(b)) {
			return ""
		}
		if kind == ntGNUBuildID && name == 4 && string(b[:4]) == "GNU\x00" && desc > 0 && desc <= 64 {
			return hex.EncodeToString(b[4:end])
		}
		b = b[min(uint64(len(b)), (end+3)&^3):]
	}
	return ""
}

// read reads size bytes at an offset of the file. It fails before it allocates if that exceeds
// limit or the file.
func (e *ELF) read(offset, size, limit uint64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%d bytes at %#x: more than %d", size, offset, limit)
	}
	if err := e.contains(Section{Offset: offset, Size: size}); err != nil {
		return nil, err
	}
	b := make([]byte, size)
	return b, e.fill(b, offset)
}

// contains returns an error for a section that reaches beyond the end of the file.
func (e *ELF) contains(s Section) error {
	if s.Offset > e.Size() || s.Size > e.Size()-s.Offset {
		return fmt.Errorf("%d bytes at %#x: %w", s.Size, s.Offset, io.ErrUnexpectedEOF)
	}
	return nil
}

// fill reads the bytes at an offset of the file.
func (e *ELF) fill(b []byte, offset uint64) error {
	n, err := e.r.ReadAt(b, int64(offset))
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%d bytes at %#x: %w", len(b), offset, err)
}

// EachPart calls f with the bytes of a section, in parts that are valid until it returns. It
// ends with the first error of f.
func (e *ELF) EachPart(s Section, f func(part []byte) error) error {
	if err := e.contains(s); err != nil {
		return err
	}
	const most = 48 << 10 // a whole number of symbols and of relocations
	for part := make([]byte, min(s.Size, most)); s.Size > 0; s.Offset, s.Size = s.Offset+uint64(len(part)), s.Size-uint64(len(part)) {
		part = part[:min(uint64(len(part)), s.Size)]
		if err := e.fill(part, s.Offset); err != nil {
			return err
		}
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls f with the entries of a table of symbols or relocations, each of size
// bytes, and with their numbers: with the first ones up to most.
func (e *ELF) eachEntry(table Section, size, most uint64, f func(i uint64, entry []byte)) {
	i := uint64(0)
	table.Size = min(table.Size/size, most) * size
	_ = e.EachPart(table, func(part []byte) error { // without them names are missing
		for ; len(part) > 0; part, i = part[size:], i+1 {
			f(i, part[:size])
		}
		return nil
	})
}

// cString returns the NUL-terminated string at an offset of a table; "" if there is none of
// a reasonable length. It shares memory with the table.
func cString(table string, offset uint32) string {
	if uint64(offset) >= uint64(len(table)) {
		return ""
	}
	table = table[offset:min(uint64(len(table)), uint64(offset)+maxName)]
	if n := strings.IndexByte(table, 0); n >= 0 {
		return table[:n]
	}
	return ""
}

// EHFrame returns the section .eh_frame, which describes how to unwind the file's code;
// false if the file has none, or no section headers.
func (e *ELF) EHFrame() (Section, bool) { return e.ehFrame, e.ehFrame.Size > 0 }

// Size returns the size of the file in bytes.
func (e *ELF) Size() uint64 { return uint64(max(e.size, 0)) }

// HasDebugInfo reports whether the file has DWARF, which package symbolize/lines reads.
func (e *ELF) HasDebugInfo() bool { return e.debugInfo }

// DebugLink returns the name of the separate debug file; "" if the file names none.
func (e *ELF) DebugLink() string {
	b, _ := e.read(e.debugLink.Offset, e.debugLink.Size, 4096)
	if name := cString(string(b), 0); !strings.Contains(name, "/") {
		return name
	}
	return ""
}
