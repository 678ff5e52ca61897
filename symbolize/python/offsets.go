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

	// of a str: where the characters are if its state says that they are ASCII, and where
	// otherwise
	StrASCII, StrOther uint32

	// Modules, of the interpreter's state, is sys.modules; 0 before 3.13. The kernel side does not
	// read it.
	Modules uint32
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
	// modules is in the description at interpreterState
	modules, thread, frame, code, str int
	// size is the number of bytes to read
	size int
}

const interpreterState = 48

var debugLayouts = map[int]debugLayout{
	13: {40, 152, 224, 272, 536, 568},
	14: {48, 176, 248, 312, 616, 648},
}

var errFreeThreaded = errors.New("a free-threaded Python: not supported")

// merge takes the offsets in _Py_DebugOffsets, given as the content of the file, and checks
// that they are plausible.
func (o *Offsets) merge(b []byte, minor int) error {
	d := debugLayouts[minor]
	if len(b) < d.size || !bytes.HasPrefix(b, []byte(debugCookie)) {
		return errors.New("_PyRuntime does not begin with its debug offsets")
	}
	at := func(field int) uint64 { return binary.LittleEndian.Uint64(b[field:]) }
	if v := at(8); v>>16 != uint64(3<<8|minor) {
		return fmt.Errorf("debug offsets of version %#x", v)
	}
	if at(16) != 0 {
		return errFreeThreaded
	}
	var strState uint32
	for _, f := range []struct {
		name string
		to   *uint32
		// of is the structure, field is the position of the offset in its description
		of, field     int
		width, atMost uint64
	}{
		{"modules", &o.Modules, interpreterState, d.modules, 8, 1 << 16},
		{"thread frame", &o.ThreadFrame, d.thread, 32, 8, 1 << 12},
		{"frame previous", &o.FramePrevious, d.frame, 8, 8, maxFrameSize},
		{"frame executable", &o.FrameCode, d.frame, 16, 8, maxFrameSize},
		{"frame instruction", &o.FrameInstruction, d.frame, 24, 8, maxFrameSize},
		{"frame owner", &o.FrameMarker, d.frame, 40, 1, maxFrameSize},
		{"code file", &o.CodeFile, d.code, 8, 8, 1 << 12},
		{"code name", &o.CodeName, d.code, 16, 8, 1 << 12},
		{"code qualified name", &o.CodeQualName, d.code, 24, 8, 1 << 12},
		{"code line table", &o.CodeLineTable, d.code, 32, 8, 1 << 12},
		{"code first line", &o.CodeFirstLine, d.code, 40, 4, 1 << 12},
		{"code bytes", &o.CodeBytes, d.code, 72, 2, 1 << 12},
		{"str state", &strState, d.str, 8, 4, 1 << 12},
	} {
		v, size := at(f.of+f.field), at(f.of)
		if v > f.atMost || v%f.width != 0 || v > size || f.width > size-v {
			return fmt.Errorf("debug offsets: %s at %d of a structure of %d bytes: impossible", f.name, v, size)
		}
		*f.to = uint32(v)
	}
	// The characters follow the object. If they are not ASCII, the object has one more pointer
	// and length.
	const utf8Cache = 16
	ascii, size := at(d.str+24), at(d.str)
	if ascii < uint64(strState)+4 || ascii%8 != 0 || ascii+utf8Cache > size || size > 1<<12 {
		return fmt.Errorf("debug offsets: a str object of %d bytes in one of %d: impossible", ascii, size)
	}
	o.StrASCII, o.StrOther = uint32(ascii), uint32(ascii+utf8Cache)
	return nil
}

// maxFrameSize bounds the plausible size of a frame, in bytes.
const maxFrameSize = 128
