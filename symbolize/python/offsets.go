package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// CodeTag is how many of the lowest bits of a frame's pointer to its code object
// are not of the pointer. Clearing them does no harm in versions that have none.
const CodeTag = 2

// None is the offset of a field that a version does not have.
const None = 0xffffffff

// Marker is how the frames of one call of _PyEval_EvalFrameDefault are told from
// those of the next one, which is how Python frames are woven into a native stack.
type Marker uint8

const (
	// MarkerNone (3.10): each frame is a call of its own.
	MarkerNone Marker = iota
	// MarkerEntry (3.11): a call's frames are, from the newest, those up to and
	// with the one whose marker byte is_entry is 1.
	MarkerEntry
	// MarkerCStack (3.12 and later): a call's frames are those before the one whose
	// marker byte, the owner, is OwnerCStack or more; that one is no Python frame,
	// and the next may be another such one.
	MarkerCStack
)

// OwnerCStack is the first owner of a frame that the interpreter puts on the C
// stack below those of a call, and which stands for no Python code.
const OwnerCStack = 3

// Offsets are where in its structures an interpreter keeps what the kernel side
// reads, in bytes. Fields are pointers of 8 bytes where nothing else is said.
type Offsets struct {
	// InterpretersHead, in _PyRuntime, is the newest PyInterpreterState.
	InterpretersHead uint32
	// ThreadsHead, in PyInterpreterState, is the newest PyThreadState.
	ThreadsHead uint32

	// of PyThreadState: the next one, its interpreter, and the pthread_t (u64)
	ThreadNext, ThreadInterp, ThreadID uint32
	// ThreadFrame, in PyThreadState, is the newest frame, or where CFrame is set
	// the _PyCFrame that has it at CFrameFrame.
	ThreadFrame uint32
	CFrame      bool
	CFrameFrame uint32

	// FrameSize is how many bytes of a frame have to be read for all fields.
	FrameSize uint32
	// of a frame (PyFrameObject in 3.10, _PyInterpreterFrame later): its code
	// object, of which the lowest CodeTag bits say something else in 3.14 and
	// have to be cleared, and the frame that called it
	FrameCode, FramePrevious uint32
	// FrameInstruction is a pointer to the instruction that is executed: its
	// distance from the code object's first code byte is what Code.Line takes.
	// Where InstructionIndex is set, it is an i32 that counts code units of 2
	// bytes instead, -1 before the first.
	FrameInstruction uint32
	InstructionIndex bool
	// FrameMarker is the byte that tells where calls end, as Marker says.
	FrameMarker uint32
	Marker      Marker

	// of PyCodeObject: three str, an int (i32), and a bytes
	CodeName, CodeFile, CodeQualName, CodeFirstLine, CodeLineTable uint32
	// CodeBytes is where the instructions begin; None where frames do not point
	// to them.
	CodeBytes uint32

	// of a str: how many characters (i64), the state (u32) that DecodeString
	// takes, and the characters, by ASCII of the state
	StrLength, StrState, StrASCII, StrOther uint32
	// of a bytes: how many (i64), and the first one
	BytesSize, BytesData uint32
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
		InterpretersHead: 32, ThreadsHead: 8,
		ThreadNext: 8, ThreadInterp: 16, ThreadID: 176, ThreadFrame: 24,
		FrameSize: 112, FrameCode: 32, FramePrevious: 24, FrameInstruction: 96, InstructionIndex: true,
		FrameMarker: None, Marker: MarkerNone,
		CodeName: 112, CodeFile: 104, CodeQualName: None, CodeFirstLine: 40, CodeLineTable: 120, CodeBytes: None,
		StrLength: 16, StrState: 32, StrASCII: 48, StrOther: 72, BytesSize: 16, BytesData: 32,
	}},
	11: {592, Offsets{
		InterpretersHead: 40, ThreadsHead: 16,
		ThreadNext: 8, ThreadInterp: 16, ThreadID: 152, ThreadFrame: 56, CFrame: true, CFrameFrame: 8,
		FrameSize: 72, FrameCode: 32, FramePrevious: 48, FrameInstruction: 56,
		FrameMarker: 68, Marker: MarkerEntry,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 72, CodeLineTable: 136, CodeBytes: 184,
		StrLength: 16, StrState: 32, StrASCII: 48, StrOther: 72, BytesSize: 16, BytesData: 32,
	}},
	12: {1544, Offsets{
		InterpretersHead: 40, ThreadsHead: 72,
		ThreadNext: 8, ThreadInterp: 16, ThreadID: 136, ThreadFrame: 56, CFrame: true, CFrameFrame: 0,
		FrameSize: 72, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56,
		FrameMarker: 70, Marker: MarkerCStack,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 192,
		StrLength: 16, StrState: 32, StrASCII: 40, StrOther: 56, BytesSize: 16, BytesData: 32,
	}},
	13: {2160, Offsets{
		InterpretersHead: 632, ThreadsHead: 7344,
		ThreadNext: 8, ThreadInterp: 16, ThreadID: 152, ThreadFrame: 72,
		FrameSize: 72, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56,
		FrameMarker: 70, Marker: MarkerCStack,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 200,
		StrLength: 16, StrState: 32, StrASCII: 40, StrOther: 56, BytesSize: 16, BytesData: 32,
	}},
	14: {2336, Offsets{
		InterpretersHead: 808, ThreadsHead: 7344,
		ThreadNext: 8, ThreadInterp: 16, ThreadID: 152, ThreadFrame: 72,
		FrameSize: 80, FrameCode: 0, FramePrevious: 8, FrameInstruction: 56,
		FrameMarker: 74, Marker: MarkerCStack,
		CodeName: 120, CodeFile: 112, CodeQualName: 128, CodeFirstLine: 68, CodeLineTable: 136, CodeBytes: 208,
		StrLength: 16, StrState: 32, StrASCII: 40, StrOther: 56, BytesSize: 16, BytesData: 32,
	}},
}

// debugCookie begins the _Py_DebugOffsets, with which _PyRuntime begins from 3.13
// on: offsets for tools as this one, written by the compiler.
const debugCookie = "xdebugpy"

// debugLayout is where _Py_DebugOffsets (Include/internal/pycore_runtime.h in 3.13,
// pycore_debug_offsets.h in 3.14) describes which structure, in bytes. All of it is
// u64; the first one of each structure is its size.
type debugLayout struct {
	runtime, interpreter, thread, frame, code, bytes, str int
	// size is how much there is to be read
	size int
}

var debugLayouts = map[int]debugLayout{
	13: {24, 48, 152, 224, 272, 512, 536, 568},
	14: {24, 48, 176, 248, 312, 592, 616, 648},
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
	for _, f := range []struct {
		name string
		to   *uint32
		// of is the structure, field is where in its description the offset is
		of, field     int
		width, atMost uint64
	}{
		{"interpreters head", &o.InterpretersHead, d.runtime, 16, 8, 1 << 20},
		{"threads head", &o.ThreadsHead, d.interpreter, 24, 8, 1 << 20},
		{"thread next", &o.ThreadNext, d.thread, 16, 8, 1 << 12},
		{"thread interp", &o.ThreadInterp, d.thread, 24, 8, 1 << 12},
		{"thread frame", &o.ThreadFrame, d.thread, 32, 8, 1 << 12},
		{"thread id", &o.ThreadID, d.thread, 40, 8, 1 << 12},
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
		{"bytes size", &o.BytesSize, d.bytes, 8, 8, 1 << 12},
		{"bytes data", &o.BytesData, d.bytes, 16, 1, 1 << 12},
		{"str state", &o.StrState, d.str, 8, 4, 1 << 12},
		{"str length", &o.StrLength, d.str, 16, 8, 1 << 12},
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
	if ascii < uint64(o.StrState)+4 || ascii%8 != 0 || ascii+utf8Cache > size || size > 1<<12 {
		return fmt.Errorf("debug offsets: a str object of %d bytes in one of %d cannot be", ascii, size)
	}
	o.StrASCII, o.StrOther = uint32(ascii), uint32(ascii+utf8Cache)
	o.FrameSize = (max(o.FramePrevious+8, o.FrameCode+8, o.FrameInstruction+8, o.FrameMarker+1) + 7) &^ 7
	return nil
}

// maxFrameSize is how much of a frame is ever read, in bytes.
const maxFrameSize = 128
