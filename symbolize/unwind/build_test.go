package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// image describes an ELF file with code at textAddr, an .eh_frame_hdr at
// hdrAddr and an .eh_frame at framesAddr.
type image struct {
	frames []byte
	// section: there are section headers; segment: there is a PT_GNU_EH_FRAME
	section, segment bool
	// hdr is the beginning of .eh_frame_hdr
	hdr  []byte
	text []span // of code; by default one at textAddr
}

// hdrOf returns an .eh_frame_hdr with the position of the frames and a count.
func hdrOf(count uint32) []byte {
	b := []byte{1, relativePC | formatSdata4, formatUdata4, relativeData | formatSdata4}
	b = binary.LittleEndian.AppendUint32(b, framesAddr-hdrAddr-4)
	return binary.LittleEndian.AppendUint32(b, count)
}

func (f *image) bytes() []byte {
	const header, program = 64, 56
	body := make([]byte, framesAddr+len(f.frames))
	copy(body[hdrAddr:], f.hdr)
	copy(body[framesAddr:], f.frames)
	text := f.text
	if text == nil {
		text = []span{{textAddr, textAddr + textSize}}
	}
	programs := []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: uint64(len(body)), Memsz: uint64(len(body))}}
	for _, s := range text {
		programs = append(programs, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: s.start, Filesz: s.end - s.start, Memsz: s.end - s.start,
		})
	}
	if f.segment {
		programs = append(programs, elf.Prog64{
			Type: uint32(elf.PT_GNU_EH_FRAME), Flags: uint32(elf.PF_R), Vaddr: hdrAddr, Off: hdrAddr, Filesz: uint64(len(f.hdr)), Memsz: uint64(len(f.hdr)),
		})
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: header, Phnum: uint16(len(programs)), Ehsize: header, Phentsize: program, Shentsize: header,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	if f.section {
		names := "\x00.eh_frame\x00"
		sections := []elf.Section64{
			{},
			{Name: 1, Type: uint32(elf.SHT_PROGBITS), Addr: framesAddr, Off: framesAddr, Size: uint64(len(f.frames))},
			{Type: uint32(elf.SHT_STRTAB), Off: uint64(len(body)), Size: uint64(len(names))},
		}
		body = append(body, names...)
		h.Shoff, h.Shnum, h.Shstrndx = uint64(len(body)), uint16(len(sections)), 2
		body, _ = binary.Append(body, binary.LittleEndian, sections)
	}
	head, _ := binary.Append(nil, binary.LittleEndian, h)
	head, _ = binary.Append(head, binary.LittleEndian, programs)
	copy(body, head)
	return body
}

// table builds the file's table.
func (f *image) table() (*Table, error) {
	b := f.bytes()
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	return Build(e, nil)
}

// twoObjects returns the frames of two object files: two functions, and a terminator after
// each.
func twoObjects() []byte {
	a := new(assembler).cie().fde(textAddr, 0x10).terminator()
	return a.fde(textAddr+0x10, 0x10, offsetIs(16)...).terminator().b
}

func TestBuild(t *testing.T) {
	both := []at{{0, entry}, {0x10, sp(16)}, {0x20, Rule{}}}
	first := []at{{0, entry}, {0x10, Rule{}}}
	// the frames follow the header, or precede it
	garbage := bytes.Repeat([]byte{1, 0x1b, 3, 0x3b}, 10)
	uncounted := hdrOf(2)
	uncounted[2] = 0xff
	absolute := append([]byte{1, formatAbsolute, formatUdata4, 0}, binary.LittleEndian.AppendUint64(nil, framesAddr)...)
	for name, test := range map[string]struct {
		file image
		want []at
	}{
		"sections":                  {image{section: true}, both},
		"sections and segment":      {image{section: true, segment: true, hdr: hdrOf(1)}, both},
		"a damaged header":          {image{section: true, segment: true, hdr: []byte{9}}, both},
		"segment":                   {image{segment: true, hdr: hdrOf(2)}, both},
		"segment, no count":         {image{segment: true, hdr: uncounted}, first},
		"segment, one counted":      {image{segment: true, hdr: hdrOf(1)}, first},
		"segment, too many counted": {image{segment: true, hdr: hdrOf(1 << 30)}, both},
		"segment, absolute":         {image{segment: true, hdr: append(absolute, 2, 0, 0, 0)}, both},
		"something follows":         {image{segment: true, hdr: hdrOf(2), frames: append(twoObjects(), garbage...)}, both},
	} {
		t.Run(name, func(t *testing.T) {
			if test.file.frames == nil {
				test.file.frames = twoObjects()
			}
			table, err := test.file.table()
			qt.Assert(t, qt.IsNil(err))
			checkTable(t, table)
			checkRules(t, table, textAddr, 0x1000, test.want)
		})
	}
}

func TestBuildErrors(t *testing.T) {
	for name, file := range map[string]image{
		"no frames":                {},
		"segment without header":   {segment: true},
		"an unknown version":       {segment: true, hdr: append([]byte{2}, hdrOf(2)[1:]...)},
		"header cut":               {segment: true, hdr: hdrOf(2)[:6]},
		"an unknown encoding":      {segment: true, hdr: append([]byte{1, 0x9b}, hdrOf(2)[2:]...)},
		"frames that are nowhere":  {segment: true, hdr: append(hdrOf(2)[:4], 0, 0, 0, 0x7f)},
		"frames of no code":        {section: true, frames: twoObjects(), text: []span{{textAddr + 0x1000, textAddr + 0x2000}}},
		"no executable segment":    {section: true, frames: twoObjects(), text: []span{}},
		"an empty section":         {section: true},
		"a section of terminators": {section: true, frames: make([]byte, 64)},
	} {
		_, err := file.table()
		qt.Check(t, qt.ErrorIs(err, ErrNoRows), qt.Commentf("%s", name))
	}

	b := (&image{section: true, frames: twoObjects()}).bytes()
	frames := bytes.Index(b, []byte{framesAddr & 0xff, framesAddr >> 8, 0, 0, 0, 0, 0, 0}) // the section's address
	binary.LittleEndian.PutUint64(b[frames+16:], 1<<40)
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	_, err = Build(e, nil)
	qt.Check(t, qt.ErrorIs(err, ErrTooLarge))
}

func TestTooLarge(t *testing.T) {
	many := func(n int, add func(a *assembler, i int)) []byte {
		a := new(assembler).cie()
		for i := range n {
			add(a, i)
		}
		return a.b
	}
	function := func(a *assembler, i int) { a.fde(textAddr+uint64(i)%textSize, 1) }
	for name, c := range map[string]struct {
		frames []byte
		err    error
	}{
		"functions":          {many(maxFDEs, function), nil},
		"too many functions": {many(maxFDEs+1, function), ErrTooLarge},
		"too many CIEs":      {many(maxCIEs, func(a *assembler, _ int) { a.cie() }), ErrTooLarge},
		"too many rows": {many(1, func(a *assembler, _ int) {
			a.fde(textAddr, 1<<30, bytes.Repeat([]byte{advance(1), cfaDefCFAOffset, 16, advance(1), cfaDefCFAOffset, 24}, maxRows/2)...)
		}), ErrTooLarge},
	} {
		_, err := (&frames{addr: framesAddr, data: c.frames}).build(spans{{textAddr, textAddr + 1<<30}}, 1<<20)
		qt.Check(t, qt.ErrorIs(err, c.err), qt.Commentf("%s", name))
	}
}

// Reading ends at once when it is to end.
func TestPauseEndsReading(t *testing.T) {
	file := image{section: true, frames: new(assembler).cie().fde(textAddr, 0x10).b}
	b := file.bytes()
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	for after := range 3 { // while the file is read, its records, its functions
		stop, calls := errors.New("stop"), 0
		_, err := Build(e, func() error {
			if calls++; calls > after {
				return stop
			}
			return nil
		})
		qt.Check(t, qt.ErrorIs(err, stop))
	}
}

func TestFramesBeforeHeader(t *testing.T) {
	// lld puts .eh_frame before .eh_frame_hdr, so the frames end there
	a := twoObjects()
	file := image{frames: append(a[:len(a)-4], 1, relativePC|formatSdata4, 3, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0), segment: true, hdr: hdrOf(3)}
	b := file.bytes()
	hdr := framesAddr + uint64(len(a)) - 4
	back := int32(framesAddr) - int32(hdr) - 4
	binary.LittleEndian.PutUint32(b[hdr+4:], uint32(back))
	binary.LittleEndian.PutUint64(b[64+2*56+16:], hdr) // the address of the third segment
	binary.LittleEndian.PutUint64(b[64+2*56+32:], 12)
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	table, err := Build(e, nil)
	qt.Assert(t, qt.IsNil(err))
	checkRules(t, table, textAddr, 0x1000, []at{{0, entry}, {0x10, sp(16)}, {0x20, Rule{}}})
}

func TestExecutable(t *testing.T) {
	header := func(kind elf.ProgType, flags elf.ProgFlag, addr, size uint64) elf.ProgHeader {
		return elf.ProgHeader{Type: kind, Flags: flags, Vaddr: addr, Filesz: size, Memsz: size * 2}
	}
	code := elf.PF_R | elf.PF_X
	s := executable([]elf.ProgHeader{
		header(elf.PT_LOAD, code, 1<<64-0x100, 1<<60),
		header(elf.PT_LOAD, code, 0x5000, 0x1000),
		header(elf.PT_LOAD, code, 0x1000, 0x1000),
		header(elf.PT_LOAD, code, 0x2000, 0x800), // adjacent
		header(elf.PT_LOAD, code, 0x5800, 0x100), // inside
		header(elf.PT_LOAD, code, 0x4000, 0),
		header(elf.PT_LOAD, elf.PF_R, 0x8000, 0x1000),
		header(elf.PT_GNU_EH_FRAME, code, 0x9000, 0x1000),
	})
	qt.Assert(t, qt.IsTrue(slices.Equal(s, spans{{1<<64 - 0x100, 1<<64 - 1}, {0x5000, 0x6000}, {0x1000, 0x2000}, {0x2000, 0x2800}, {0x5800, 0x5900}})), qt.Commentf("%x", s))
	for addr, want := range map[uint64]uint64{0: 0, 0xfff: 0, 0x1000: 0x2000, 0x2000: 0x2800, 0x27ff: 0x2800, 0x2800: 0, 0x5810: 0x6000, 0x5fff: 0x6000, 0x6000: 0} {
		end, ok := s.end(addr)
		qt.Check(t, qt.Equals(end, want), qt.Commentf("%#x", addr))
		qt.Check(t, qt.Equals(ok, want != 0))
	}
}
