package python

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// image is a file with what Find reads of an interpreter, and can be varied. All of it is
// one segment, at address 0.
type image struct {
	version uint32
	// debug is _Py_DebugOffsets, key the offset that the code takes.
	debug []byte
	key   uint32
	// dealloc is tp_dealloc; relocated: a relocation sets it.
	dealloc   uint64
	relocated bool
	// head is by how much the type's fields lie further back.
	head uint64
	// without and with are names of symbols to leave out and to add.
	without, with string
}

// the layout of an image, which is kept small for fuzzing
const (
	imageRuntime = 0x200 // data
	imageVersion = 0x490
	imageType    = 0x4a0
	imageGILCode = 0x500 // code
	imageCold    = 0x540
	imageColdEnd = 0x580
	imageEval    = 0x580
	imageDealloc = 0x600
	imageUnwind  = 0x640 // data
	imageRela    = 0x740
	imageSymbols = 0x800
	imageStrings = 0x8c0
	imageHeaders = 0xa00
	imageSize    = 0xb00
)

// goodImage returns an image of the interpreter of a minor version.
func goodImage(minor int) *image {
	f := &image{
		version: 3<<24 | uint32(minor)<<16 | 4<<8 | 0xf0,
		key:     uint32(layouts[minor].key), dealloc: imageDealloc, relocated: true,
	}
	if minor >= 13 {
		f.debug = debugOffsets(minor, false)
	}
	return f
}

// freeImage returns an image of a free-threaded interpreter.
func freeImage(minor int) *image {
	f := goodImage(minor)
	f.debug, f.head = debugOffsets(minor, true), freeHead
	return f
}

// offsetsOf returns the offsets of a version that was tested.
func offsetsOf(minor int, free bool) Offsets {
	if minor < 13 {
		return layouts[minor].Offsets
	}
	o := Offsets{
		ThreadFrame: 72, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56, FrameMarker: 70,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 200,
		StrASCII: 40, StrOther: 56,
	}
	if minor == 14 {
		o.FrameMarker, o.CodeBytes = 74, 208
	}
	if !free {
		return o
	}
	for _, field := range []*uint32{&o.CodeName, &o.CodeFile, &o.CodeQualName, &o.CodeFirstLine, &o.CodeLineTable, &o.CodeBytes, &o.StrASCII, &o.StrOther} {
		*field += freeHead
	}
	o.Head = freeHead
	if minor == 14 { // as in the headers of 3.14.8
		o.FrameMarker, o.CodeBytes, o.FrameCopy, o.CodeCopies, o.StrShift = 78, 232, 72, 224, 6
	}
	return o
}

// heapOf returns the heap's offsets of a version that was tested, with a GIL.
func heapOf(minor int) Heap {
	h := heaps[minor]
	switch minor {
	case 13:
		h.Interpreter, h.Threads, h.Modules, h.Generations, h.NextThread = 640, 7344, 7656, 7424, 8
		h.Locals, h.LocalNames, h.TupleItems = 72, []uint32{96}, 24
	case 14:
		h.Interpreter, h.Threads, h.Modules, h.Generations, h.NextThread = 816, 7344, 7688, 7432, 8
		h.Locals, h.LocalNames, h.TupleItems = 80, []uint32{96}, 32
	}
	return h
}

// debugOffsets returns _Py_DebugOffsets of a version, as far as it is used.
func debugOffsets(minor int, free bool) []byte {
	d, o, h := debugLayouts[minor], offsetsOf(minor, free), heapOf(minor)
	b := make([]byte, d.size)
	copy(b, debugCookie)
	put := func(at int, values ...uint32) {
		for i, v := range values {
			binary.LittleEndian.PutUint64(b[at+i*8:], uint64(v))
		}
	}
	put(8, 3<<24|uint32(minor)<<16|0x00f0)
	if free {
		put(16, 1)
	}
	put(runtimeState, 283376, 0, h.Interpreter-8)
	put(interpreterState, 225840, 0, 0, h.Threads)
	put(interpreterState+d.collector, h.Generations-24, h.Modules)
	put(d.thread, 304, 0, h.NextThread, 0, o.ThreadFrame)
	put(d.frame, 88, o.FramePrevious, o.FrameCode, o.FrameInstruction, h.Locals, o.FrameMarker)
	put(d.code, 240, o.CodeFile, o.CodeName, o.CodeQualName, o.CodeLineTable, o.CodeFirstLine, 0, h.LocalNames[0], 0, o.CodeBytes)
	if o.FrameCopy != 0 {
		put(d.frame+56, o.FrameCopy)
		put(d.code+80, o.CodeCopies)
	}
	put(d.object, 16+o.Head, 8+o.Head)
	put(d.kind, 416+o.Head, 0, 0, 168+o.Head)
	put(d.tuple, 56, h.TupleItems)
	put(d.bytes, 40+o.Head, 16+o.Head, 32+o.Head)
	put(d.str, 64+o.Head, 32+o.Head, 16+o.Head, o.StrASCII)
	return b
}

type imageSymbol struct {
	name       string
	addr, size uint64
	kind       elf.SymType
}

func (f *image) symbols() (list []imageSymbol) {
	for _, s := range []imageSymbol{
		{"_PyRuntime", imageRuntime, 0x1000, elf.STT_OBJECT},
		{"Py_Version", imageVersion, 4, elf.STT_OBJECT},
		{"PyCode_Type", imageType, 416, elf.STT_OBJECT},
		{"PyGILState_GetThisThreadState", imageGILCode, 32, elf.STT_FUNC},
		{"_PyEval_EvalFrameDefault", imageEval, 0x80, elf.STT_FUNC},
		{f.with, imageVersion, 8, elf.STT_OBJECT},
	} {
		if s.name != f.without && s.name != "" {
			list = append(list, s)
		}
	}
	return list
}

func (f *image) bytes() []byte {
	b := make([]byte, imageSize)
	le := binary.LittleEndian
	put := func(at int, values ...any) {
		for _, v := range values {
			n, _ := binary.Encode(b[at:], le, v) // only of fixed sizes
			at += n
		}
	}
	copy(b[imageRuntime:], f.debug)
	put(imageVersion, f.version)

	// lea rdi, [rip + key]; jmp +0
	put(imageGILCode, [3]byte{0x48, 0x8d, 0x3d}, int32(imageRuntime+int(f.key)-imageGILCode-7), [5]byte{0xe9})
	// jne cold+4, out of the function; jmp to another one
	put(imageEval+0x10, [2]byte{0x0f, 0x85}, int32(imageCold+4-imageEval-0x16))
	put(imageEval+0x20, byte(0xe9), int32(imageDealloc-imageEval-0x25))
	// jmp back into the middle
	put(imageCold+0x20, byte(0xe9), int32(imageEval+0x16-imageCold-0x25))

	functions := [][2]int{{imageGILCode, 32}, {imageCold, imageColdEnd - imageCold}, {imageEval, 0x80}, {imageDealloc, 0x40}}
	frames := imageUnwind + 12
	put(imageUnwind, [4]byte{1, 0x1b, 3, 0x3b}, int32(frames-imageUnwind-4), uint32(len(functions)))
	// a CIE, in which addresses are relative
	put(frames, uint32(20), uint32(0), [16]byte{1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1})
	for i, r := range functions {
		at := frames + 24 + i*20
		put(at, uint32(16), int32(at+4-frames), int32(r[0]-at-8), uint32(r[1]), uint32(0))
	}

	if f.relocated {
		put(imageRela, uint64(8), uint64(elf.R_X86_64_RELATIVE), uint64(0),
			uint64(imageType+48)+f.head, uint64(elf.R_X86_64_RELATIVE), f.dealloc)
	} else {
		put(imageType+48+int(f.head), f.dealloc)
	}
	list, text := f.symbols(), imageStrings+1
	for i, s := range list {
		put(imageSymbols+(i+1)*elf.Sym64Size, elf.Sym64{
			Name: uint32(text - imageStrings), Info: byte(elf.STB_GLOBAL)<<4 | byte(s.kind), Shndx: 1, Value: s.addr, Size: s.size,
		})
		text += copy(b[text:], s.name) + 1
	}
	rela := text
	text += copy(b[text:], ".rela.dyn") + 1
	programs := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: imageGILCode, Memsz: imageGILCode},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: imageGILCode, Vaddr: imageGILCode, Filesz: imageUnwind - imageGILCode},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: imageUnwind, Vaddr: imageUnwind, Filesz: imageHeaders - imageUnwind},
		{Type: uint32(elf.PT_GNU_EH_FRAME), Off: imageUnwind, Vaddr: imageUnwind, Filesz: imageRela - imageUnwind},
	}
	sections := []elf.Section64{{},
		{Type: uint32(elf.SHT_DYNSYM), Off: imageSymbols, Addr: imageSymbols, Size: uint64(len(list)+1) * elf.Sym64Size, Link: 2, Entsize: elf.Sym64Size},
		{Type: uint32(elf.SHT_STRTAB), Off: imageStrings, Addr: imageStrings, Size: uint64(text - imageStrings)},
		{Type: uint32(elf.SHT_RELA), Name: uint32(rela - imageStrings), Off: imageRela, Addr: imageRela, Size: 48},
	}
	put(0, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: 64, Phentsize: 56, Phnum: uint16(len(programs)),
		Shoff: imageHeaders, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 2,
	})
	put(64, programs)
	put(imageHeaders, sections)
	return b
}

func (f *image) open(t testing.TB) *symbolize.ELF {
	t.Helper()
	b := f.bytes()
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	return e
}
