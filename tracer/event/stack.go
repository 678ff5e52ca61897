package event

import (
	"hash/maphash"
	"sync"
)

// Frame is one call of a stack.
type Frame struct {
	// Kind is "native" or "python".
	Kind string `json:"kind"`
	// Name is the function's, in the form for people; "" where no symbol covers
	// the address.
	Name string `json:"name,omitempty"`
	// Symbol is the name that the linker knows the function by, mangled.
	Symbol string `json:"-"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Inlined marks a function that the compiler put into the frame that
	// follows, with which it shares Address.
	Inlined bool `json:"inlined,omitempty"`
	// Module is the base name of the mapped file.
	Module string `json:"module,omitempty"`
	// BuildID is the mapped file's, in hexadecimal.
	BuildID string `json:"-"`
	// Address is the frame's address in the module's file: of the return
	// address less one, which lies in the call. In records where Name is "".
	Address uint64 `json:"address,omitempty"`
}

// The kinds of frames.
const (
	Native = "native"
	Python = "python"
)

// Stack is a call stack, shared by all events that happened there. Names and
// lines are looked up when they are first asked for.
type Stack struct {
	// ID tells the stacks of one trace apart; it is never 0.
	ID uint64

	mu     sync.Mutex
	lookup Lookup // nil: frames has them
	frames []Frame
	// json is the frames as records have them, kept from the second time on: most
	// stacks of a program come once, and some come a million times.
	json    []byte
	written bool
}

// Lookup is where the calls of a stack are looked up, innermost first.
type Lookup interface {
	Frames() []Frame
	// AppendFrames appends the frames as AppendFrames does, and need not make
	// them for that.
	AppendFrames(b []byte) []byte
}

// NewStack returns a stack whose frames are looked up when somebody asks.
func NewStack(id uint64, lookup Lookup) *Stack {
	return &Stack{ID: id, lookup: lookup}
}

// StackOf returns a stack of known frames, innermost first. Equal frames have
// equal IDs within this run of the program.
func StackOf(frames []Frame) *Stack {
	var h maphash.Hash
	h.SetSeed(stackSeed)
	for i := range frames {
		maphash.WriteComparable(&h, frames[i])
	}
	return &Stack{ID: h.Sum64() | 1, frames: frames}
}

var stackSeed = maphash.MakeSeed()

// Frames are the calls, innermost first; none of a nil stack. They must not be
// modified.
func (s *Stack) Frames() []Frame {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lookup != nil {
		s.frames, s.lookup = s.lookup.Frames(), nil
	}
	return s.frames
}

// appendJSON appends the frames as a list.
func (s *Stack) appendJSON(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json != nil {
		return append(b, s.json...)
	}
	begin := len(b)
	b = append(b, '[')
	if s.lookup != nil {
		b = s.lookup.AppendFrames(b)
	} else {
		b = AppendFrames(b, s.frames)
	}
	b = append(b, ']')
	if s.written {
		s.json = append([]byte(nil), b[begin:]...)
	}
	s.written = true
	return b
}

// MarshalJSON gives the frames as a list.
func (s *Stack) MarshalJSON() ([]byte, error) {
	return s.appendJSON(nil), nil
}
