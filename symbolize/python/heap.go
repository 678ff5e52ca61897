package python

import "encoding/binary"

// Heap are the offsets of the structures that lead to an interpreter's objects, in bytes. Fields
// are pointers of 8 bytes unless stated otherwise. From 3.13 on, _PyRuntime has those that
// Runtime.merge reads. They are tested with 3.10.13, 3.11.7, 3.12.1,
// 3.13.0, Debian's 3.11.2, 3.13.5 and 3.14.8, and Ubuntu's 3.10.4, 3.10.12, 3.12.3, 3.13.3, 3.13.7 and
// 3.14.4.
type Heap struct {
	// Interpreter, in _PyRuntime, is the main interpreter's state.
	Interpreter uint32
	// of that state: the newest thread, sys.modules, and the heads of the garbage collector's
	// three lists
	Threads, Modules, Generations uint32
	// of PyThreadState
	NextThread, ThreadDict, ThreadContext, Raised uint32
	// Handled is the innermost of the exceptions that are being handled: a structure with the
	// exception at HandledValue, followed by the outer one.
	Handled, HandledValue uint32

	// Locals of a frame are its variables in the order of their names, of which the lowest bit has
	// another meaning in 3.14 and must be cleared, and FrameMapping the dict of a class body.
	Locals, FrameMapping uint32
	// LocalNames, in PyCodeObject, are the tuples with these names, in order.
	LocalNames []uint32
	// FrameOfObject is the frame of a PyFrameObject; 0 if the object is the frame.
	FrameOfObject uint32
	// GeneratorFrame is the frame in a generator or coroutine: a pointer or, if GeneratorState is
	// not 0, the frame itself. GeneratorState is an i8, above 0 once the frame is over.
	GeneratorFrame, GeneratorState uint32

	// CachedKeys of a type are the names of its instances' attributes.
	CachedKeys uint32
	// Traceback of an exception is followed by its context and its cause.
	Traceback uint32
	// TupleItems are the items of a tuple.
	TupleItems uint32
	// Attributes says where the attributes of an instance are.
	Attributes Attributes
}

// Attributes is where an instance has the attributes that are not in a dict of its own.
type Attributes uint8

// The places: none; at a pointer 32 bytes before the object; the same 24 bytes before it, where
// the lowest bit is set, and otherwise the dict; behind the object.
const (
	NoAttributes Attributes = iota
	ValuesBefore
	ValuesOrDict
	ValuesInline
)

var heaps = map[int]Heap{
	10: {
		Interpreter: 40, Threads: 8, Modules: 856, Generations: 640,
		NextThread: 8, ThreadDict: 152, ThreadContext: 240, Raised: 96, Handled: 144, HandledValue: 8,
		Locals: 352, FrameMapping: 56, LocalNames: []uint32{72, 88, 80},
		GeneratorFrame: 16, CachedKeys: 872, Traceback: 32, TupleItems: 24,
	},
	11: {
		Interpreter: 48, Threads: 16, Modules: 888, Generations: 672,
		NextThread: 8, ThreadDict: 128, ThreadContext: 224, Raised: 104, Handled: 120,
		Locals: 72, FrameMapping: 24, LocalNames: []uint32{96}, FrameOfObject: 24,
		GeneratorFrame: 80, GeneratorState: 75, CachedKeys: 872, Traceback: 40, TupleItems: 24,
		Attributes: ValuesBefore,
	},
	12: {
		Interpreter: 48, Threads: 72, Modules: 944, Generations: 136,
		NextThread: 8, ThreadDict: 112, ThreadContext: 208, Raised: 96, Handled: 104,
		Locals: 72, FrameMapping: 40, LocalNames: []uint32{96}, FrameOfObject: 24,
		GeneratorFrame: 72, GeneratorState: 67, CachedKeys: 880, Traceback: 40, TupleItems: 24,
		Attributes: ValuesOrDict,
	},
	13: {
		ThreadDict: 128, ThreadContext: 208, Raised: 112, Handled: 120, FrameMapping: 40, FrameOfObject: 24,
		GeneratorFrame: 72, GeneratorState: 67, CachedKeys: 880, Traceback: 40, Attributes: ValuesInline,
	},
	14: {
		ThreadDict: 128, ThreadContext: 208, Raised: 112, Handled: 120, FrameMapping: 40, FrameOfObject: 24,
		GeneratorFrame: 72, GeneratorState: 67, CachedKeys: 880, Traceback: 40, Attributes: ValuesInline,
	},
}

// HeapOf returns the offsets of a minor version, without those that the interpreter's file has.
func HeapOf(minor int) Heap { return heaps[minor] }

// StrState and StrLength are where a str has its state, for DecodeString, and the number of its
// characters.
const (
	StrLength = 16
	StrState  = 32
)

// StrBytes returns where the characters of a str begin, by its first 40 bytes, and how many bytes
// they take.
func (o *Offsets) StrBytes(b []byte) (at uint32, n uint64) {
	state := binary.LittleEndian.Uint32(b[StrState:])
	n = binary.LittleEndian.Uint64(b[StrLength:])
	if state&stateASCII != 0 {
		return o.StrASCII, n
	}
	size := uint64(state & stateKind >> 2)
	if n > 1<<32 {
		return o.StrOther, n
	}
	return o.StrOther, n * size
}
