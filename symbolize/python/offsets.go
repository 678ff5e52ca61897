package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// None is the offset of a field that a version does not have.
const None = 0xffffffff

// Offsets are where in its structures an interpreter keeps what the kernel side
// reads, in bytes. Fields are pointers of 8 bytes where nothing else is said.
type Offsets struct {
	// ThreadFrame, in PyThreadState, is the newest frame, or where CFrame is set
	// the _PyCFrame that has it at CFrameFrame.
	ThreadFrame uint32
	CFrame      bool
	CFrameFrame uint32

	// of a frame (PyFrameObject in 3.10, _PyInterpreterFrame later): its code
	// object, of which the lowest 2 bits say something else in 3.14 and have to be
	// cleared, and the frame that called it
	FrameCode, FramePrevious uint32
	// FrameInstruction is a pointer to the instruction that is executed: its
	// distance from the code object's first code byte is what Code.Line takes. In
	// 3.10 it is an i32 that counts code units of 2 bytes instead, -1 before the
	// first.
	FrameInstruction uint32
	// FrameMarker is the byte that tells the frames of one call of
	// _PyEval_EvalFrameDefault from those of the next one. In 3.10 there is none:
	// each frame is a call of its own. In 3.11 it is is_entry: a call's frames are,
	// from the newest, those up to and with the one where it is 1. From 3.12 on it is
	// the owner: a call's frames are those before the one where it is 3 or more,
	// which is no Python frame; the next may be another such one.
	FrameMarker uint32

	// of PyCodeObject: three str, an int (i32), and a bytes
	CodeName, CodeFile, CodeQualName, CodeFirstLine, CodeLineTable uint32
	// CodeBytes is where the instructions begin; None where frames do not point
	// to them.
	CodeBytes uint32

	// of a str: the characters, by whether its state says that they are ASCII
	StrASCII, StrOther uint32
}

// layout is what is known of a version: the offsets, and that of autoTSSkey in
// _PyRuntime.
type layout struct {
	key uint64
	Offsets
}

// layouts are those of the versions by minor, as tested with 3.10.2, 3.10.13,
// 3.11.2, 3.11.3, 3.11.7, 3.12.1, 3.13.0, 3.13.5 and 3.14.3.
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
	13: {2160, Offsets{
		ThreadFrame: 72, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56, FrameMarker: 70,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 200,
		StrASCII: 40, StrOther: 56,
	}},
	14: {2336, Offsets{
		ThreadFrame: 72, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56, FrameMarker: 74,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 208,
		StrASCII: 40, StrOther: 56,
	}},
}

// debugCookie begins the _Py_DebugOffsets, with which _PyRuntime begins from 3.13
// on: offsets for tools as this one, written by the compiler.
const debugCookie = "xdebugpy"

// debugLayout is where _Py_DebugOffsets (Include/internal/pycore_runtime.h in 3.13,
// pycore_debug_offsets.h in 3.14) describes which structure, in bytes. All of it is
// u64; the first one of each structure is its size.
type debugLayout struct {
	thread, frame, code, str int
	// size is how much there is to be read
	size int
}

var debugLayouts = map[int]debugLayout{
	13: {152, 224, 272, 536, 568},
	14: {176, 248, 312, 616, 648},
}

var errFreeThreaded = errors.New("a free-threaded Python: not supported")

// merge replaces the offsets that _Py_DebugOffsets has, given as the file has it,
// and checks that they may be true.
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
		// of is the structure, field is where in its description the offset is
		of, field     int
		width, atMost uint64
	}{
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
			return fmt.Errorf("debug offsets: %s at %d of a structure of %d bytes cannot be", f.name, v, size)
		}
		*f.to = uint32(v)
	}
	// The characters follow the object, which for others than ASCII has a pointer
	// and a length more.
	const utf8Cache = 16
	ascii, size := at(d.str+24), at(d.str)
	if ascii < uint64(strState)+4 || ascii%8 != 0 || ascii+utf8Cache > size || size > 1<<12 {
		return fmt.Errorf("debug offsets: a str object of %d bytes in one of %d cannot be", ascii, size)
	}
	o.StrASCII, o.StrOther = uint32(ascii), uint32(ascii+utf8Cache)
	return nil
}

// maxFrameSize bounds what is believed of the size of a frame, in bytes.
const maxFrameSize = 128
