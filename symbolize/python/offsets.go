package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// None is the offset of a field that a version lacks.
const None = 0xffffffff

// Offsets are the fields of an interpreter's structures that the kernel side reads, in
// bytes. Fields are pointers of 8 bytes unless stated otherwise.
type Offsets struct {
	// ThreadFrame, in PyThreadState, is the newest frame or, if CFrame is set, the
	// _PyCFrame that has it at CFrameFrame.
	ThreadFrame uint32
	CFrame      bool
	CFrameFrame uint32

	// of a frame (PyFrameObject in 3.10, _PyInterpreterFrame later): its code object, whose
	// lowest 2 bits have another meaning in 3.14 and must be cleared, and the frame that
	// called it
	FrameCode, FramePrevious uint32
	// FrameInstruction is a pointer to the current instruction: its distance from the code
	// object's first code byte is the argument of Code.Line. In 3.10 it is an i32 that
	// counts code units of 2 bytes instead, -1 before the first.
	FrameInstruction uint32
	// FrameMarker is the byte that separates the frames of one call of _PyEval_EvalFrameDefault
	// from those of the next one. 3.10 has none: each frame is a call of its own. In 3.11 it is
	// is_entry: the frames of a call are, from the newest, those up to and including the one with
	// 1. From 3.12 on it is the owner: the frames of a call are those before the one with 3 or
	// more, which is not a Python frame and may be followed by another such frame.
	FrameMarker uint32

	// of PyCodeObject: three str, an int (i32), and a bytes
	CodeName, CodeFile, CodeQualName, CodeFirstLine, CodeLineTable uint32
	// CodeBytes is the start of the instructions; None if frames do not point to them.
	CodeBytes uint32

	// FrameCopy is an i32, the number of the copy of its code that a frame executes, and CodeCopies
	// points to the copies: their number and, from 8 on, a pointer to the instructions of each. 0
	// if all threads execute the instructions at CodeBytes, as before the free-threaded 3.14.
	FrameCopy, CodeCopies uint32

	// of a str: where the characters are if its state says that they are ASCII, and where
	// otherwise
	StrASCII, StrOther uint32
	// StrShift is by how many bits the state of a str must be shifted right for DecodeString.
	StrShift uint32

	// Head is by how many bytes the fields that all versions have in common, such as the type of an
	// object, lie further back: 16 in a free-threaded build, whose objects begin with a thread, a lock
	// and two counts of references in place of one count.
	Head uint32
}

// layout has the offsets of a version, and that of autoTSSkey in _PyRuntime.
type layout struct {
	key uint64
	Offsets
}

// layouts are the layouts by minor version, as tested with 3.10.2, 3.10.13, 3.11.2, 3.11.3,
// 3.11.7, 3.12.1, 3.13.0, 3.13.5 and 3.14.3. From 3.13 on _PyRuntime has the offsets.
var layouts = map[int]layout{
	10: {584, Offsets{
		ThreadFrame: 24, FrameCode: 32, FramePrevious: 24, FrameInstruction: 96, FrameMarker: None,
		CodeName: 112, CodeFile: 104, CodeQualName: None, CodeFirstLine: 40, CodeLineTable: 120, CodeBytes: None,
		StrASCII: 48, StrOther: 72,
	}},
	11: {592, Offsets{
		ThreadFrame: 56, CFrame: true, CFrameFrame: 8, FrameCode: 32, FramePrevious: 48, FrameInstruction: 56, FrameMarker: 68,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 72, CodeLineTable: 136, CodeBytes: 184,
		StrASCII: 48, StrOther: 72,
	}},
	12: {1544, Offsets{
		ThreadFrame: 56, CFrame: true, CFrameFrame: 0, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56, FrameMarker: 70,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 192,
		StrASCII: 40, StrOther: 56,
	}},
	13: {key: 2160},
	14: {key: 2336},
}

// debugCookie is the beginning of _Py_DebugOffsets, at the start of _PyRuntime from 3.13
// on: offsets for debuggers and profilers, written by the compiler.
const debugCookie = "xdebugpy"

// debugLayout has the positions in _Py_DebugOffsets (Include/internal/pycore_runtime.h in
// 3.13, pycore_debug_offsets.h in 3.14) of the descriptions of structures, in bytes. All
// values are u64; the first one for each structure is its size.
type debugLayout struct {
	thread, frame, code, object, kind, tuple, bytes, str int
	// of the description at interpreterState
	collector, modules int
	// size is the number of bytes to read
	size int
}

// The positions of two descriptions that are the same in all versions.
const (
	runtimeState     = 24
	interpreterState = 48
)

var debugLayouts = map[int]debugLayout{
	13: {thread: 152, frame: 224, code: 272, object: 352, kind: 368, tuple: 400, bytes: 512, str: 536, collector: 32, modules: 40, size: 568},
	14: {thread: 176, frame: 248, code: 312, object: 400, kind: 416, tuple: 448, bytes: 592, str: 616, collector: 40, modules: 48, size: 648},
}

// freeHead is Offsets.Head of a free-threaded build.
const freeHead = 16

// merge takes the offsets in _Py_DebugOffsets, given as the content of the file, and checks
// that they are plausible.
func (r *Runtime) merge(b []byte) error {
	d, o, h := debugLayouts[r.Minor], &r.Offsets, &r.Heap
	if len(b) < d.size || !bytes.HasPrefix(b, []byte(debugCookie)) {
		return errors.New("_PyRuntime does not begin with its debug offsets")
	}
	at := func(field int) uint64 { return binary.LittleEndian.Uint64(b[field:]) }
	if v := at(8); v>>16 != uint64(3<<8|r.Minor) {
		return fmt.Errorf("debug offsets of version %#x", v)
	}
	type field struct {
		name string
		to   *uint32
		// of is the structure, field is the position of the offset in its description
		of, field     int
		width, atMost uint64
	}
	var interpreters, collector, localNames uint32
	fields := []field{
		{"interpreters", &interpreters, runtimeState, 16, 8, 1 << 16},
		{"threads", &h.Threads, interpreterState, 24, 8, 1 << 16},
		{"garbage collector", &collector, interpreterState, d.collector, 8, 1 << 16},
		{"modules", &h.Modules, interpreterState, d.modules, 8, 1 << 16},
		{"next thread", &h.NextThread, d.thread, 16, 8, 1 << 12},
		{"thread frame", &o.ThreadFrame, d.thread, 32, 8, 1 << 12},
		{"frame previous", &o.FramePrevious, d.frame, 8, 8, maxFrameSize},
		{"frame executable", &o.FrameCode, d.frame, 16, 8, maxFrameSize},
		{"frame instruction", &o.FrameInstruction, d.frame, 24, 8, maxFrameSize},
		{"frame locals", &h.Locals, d.frame, 32, 8, maxFrameSize},
		{"frame owner", &o.FrameMarker, d.frame, 40, 1, maxFrameSize},
		{"code file", &o.CodeFile, d.code, 8, 8, 1 << 12},
		{"code name", &o.CodeName, d.code, 16, 8, 1 << 12},
		{"code qualified name", &o.CodeQualName, d.code, 24, 8, 1 << 12},
		{"code line table", &o.CodeLineTable, d.code, 32, 8, 1 << 12},
		{"code first line", &o.CodeFirstLine, d.code, 40, 4, 1 << 12},
		{"code names of locals", &localNames, d.code, 56, 8, 1 << 12},
		{"code bytes", &o.CodeBytes, d.code, 72, 2, 1 << 12},
		{"tuple items", &h.TupleItems, d.tuple, 8, 8, 1 << 12},
	}
	if r.FreeThreaded = at(16) != 0; r.FreeThreaded {
		o.Head = freeHead
		if r.Minor >= 14 {
			o.StrShift = 6 // one byte in place of 2 bits says whether it is interned
			fields = append(fields,
				field{"frame copy", &o.FrameCopy, d.frame, 56, 4, maxFrameSize},
				field{"code copies", &o.CodeCopies, d.code, 80, 8, 1 << 12})
		}
	}
	for _, f := range fields {
		v, size := at(f.of+f.field), at(f.of)
		if v > f.atMost || v%f.width != 0 || v > size || f.width > size-v {
			return fmt.Errorf("debug offsets: %s at %d of a structure of %d bytes: impossible", f.name, v, size)
		}
		*f.to = uint32(v)
	}
	// which the code of both sides has as constants, for a build with a GIL
	for _, f := range []struct {
		name  string
		field int
		want  uint64
	}{
		{"object type", d.object + 8, 8}, {"type flags", d.kind + 24, 168}, {"bytes size", d.bytes + 8, 16},
		{"bytes data", d.bytes + 16, 32}, {"str state", d.str + 8, StrState}, {"str length", d.str + 16, StrLength},
	} {
		if v, want := at(f.field), f.want+uint64(o.Head); v != want {
			return fmt.Errorf("debug offsets: %s at %d, not at %d: unknown layout", f.name, v, want)
		}
	}
	// The characters follow the object. If they are not ASCII, the object has one more pointer
	// and length.
	const utf8Cache = 16
	ascii, size := at(d.str+24), at(d.str)
	if ascii < StrState+uint64(o.Head)+4 || ascii%8 != 0 || ascii+utf8Cache > size || size > 1<<12 {
		return fmt.Errorf("debug offsets: a str object of %d bytes in one of %d: impossible", ascii, size)
	}
	o.StrASCII, o.StrOther = uint32(ascii), uint32(ascii+utf8Cache)
	h.Interpreter, h.Generations, h.LocalNames = interpreters+8, collector+24, []uint32{localNames}
	return nil
}

// maxFrameSize bounds the plausible size of a frame, in bytes.
const maxFrameSize = 128
