package event

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"sync"
)

// Frame is one call of a stack.
type Frame struct {
	// Kind is "native" or "python".
	Kind string `json:"kind" schema:"native|python"`
	// Name is the function's, in the form for people; "" where no symbol covers
	// the address.
	Name string `json:"name,omitempty"`
	// Symbol is the name that the linker knows the function by, mangled.
	Symbol string `json:"-"`
	// File and Line are where the call is. Native frames have them only in a recording that is read
	// where debug information is available.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Inlined marks a function that the compiler put into the frame that
	// follows, with which it shares Address.
	Inlined bool `json:"inlined,omitempty"`
	// Module is the base name of the mapped file.
	Module string `json:"module,omitempty"`
	// Path is the mapped file's, as the process sees it; "" where it has none.
	Path string `json:"-"`
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

// Call is a call as people see it: its frames innermost first, several where the
// compiler inlined functions. Many stacks share it.
type Call struct {
	Frames []Frame

	once sync.Once
	json []byte // the frames as records have them, once somebody asked
}

// NewCall returns a call of known frames, which must not be modified.
func NewCall(frames []Frame) *Call { return &Call{Frames: frames} }

// asJSON returns the frames as records have them, with commas between them.
func (c *Call) asJSON() []byte {
	c.once.Do(func() {
		list, _ := MarshalJSON(c.Frames) // has no error for texts and numbers
		c.json = list[1 : len(list)-1]
	})
	return c.json
}

// Stack is a call stack, shared by all events that happened there. Names and
// lines are looked up when they are first asked for.
type Stack struct {
	// ID identifies the stack within one trace; it is never 0.
	ID uint64

	mu     sync.Mutex
	source Source // nil: calls has them
	calls  []*Call
}

// A Source looks up the calls of one stack, innermost first. A stack asks it once.
type Source interface{ LookUp() []*Call }

// NewStack returns a stack whose calls, innermost first, are resolved by lookup on first use;
// without lookup it has none.
func NewStack(id uint64, lookup func() []*Call) *Stack {
	s := &Stack{ID: id}
	if lookup != nil {
		s.source = lookupFunc(lookup)
	}
	return s
}

type lookupFunc func() []*Call

func (f lookupFunc) LookUp() []*Call { return f() }

// Begin gives a stack that is part of its source, and has not been used, its id and the source: a tracer that is flooded
// with stacks makes one object for each.
func (s *Stack) Begin(id uint64, source Source) { s.ID, s.source = id, source }

// StackOf returns a stack of known frames, innermost first. Equal frames have
// equal IDs within this run of the program.
func StackOf(frames []Frame) *Stack {
	var h maphash.Hash
	h.SetSeed(stackSeed)
	for i := range frames {
		maphash.WriteComparable(&h, frames[i])
	}
	return &Stack{ID: h.Sum64() | 1, calls: []*Call{NewCall(frames)}}
}

var stackSeed = maphash.MakeSeed()

// Calls are the calls, innermost first; none of a nil stack. They must not be
// modified.
func (s *Stack) Calls() []*Call {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source != nil {
		s.calls, s.source = s.source.LookUp(), nil
	}
	return s.calls
}

// Frames are the frames of all calls, innermost first.
func (s *Stack) Frames() []Frame {
	calls := s.Calls()
	if len(calls) == 1 {
		return calls[0].Frames
	}
	n := 0
	for _, c := range calls {
		n += len(c.Frames)
	}
	frames := slices.Grow([]Frame(nil), n)
	for _, c := range calls {
		frames = append(frames, c.Frames...)
	}
	return frames
}

// AppendJSON appends the frames as a list.
func (s *Stack) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, c := range s.Calls() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, c.asJSON()...)
	}
	return append(b, ']')
}

// MarshalJSON gives the frames as a list.
func (s *Stack) MarshalJSON() ([]byte, error) {
	return s.AppendJSON(nil), nil
}

// UnmarshalJSON reads the frames that MarshalJSON wrote.
func (s *Stack) UnmarshalJSON(b []byte) error {
	var frames []Frame
	if err := json.Unmarshal(b, &frames); err != nil {
		return err
	}
	of := StackOf(frames)
	s.ID, s.calls = of.ID, of.calls
	return nil
}
