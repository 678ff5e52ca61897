package aggregate

import (
	"encoding/binary"

	"ttmem/tracer/event"
)

const (
	// maxNoteRefs is how many frames the stacks of a note have together, and
	// maxNoteDepth how many one of them has.
	maxNoteRefs  = 1 << 22
	maxNoteDepth = 2048
	// The rest keeps what a note makes who reads it hold near to its own length.
	maxNoteSites     = 1 << 18
	maxNoteProcesses = 1 << 16
	maxNoteSets      = 1 << 16
	maxNoteSteps     = 2 * maxGrowthSteps
)

// A growthWriter writes a note: strings, frames and stacks, and what refers to them.
type growthWriter struct {
	body                    []byte
	strings, frames, stacks []byte
	stringNumbers           map[string]uint64
	frameNumbers            map[event.Frame]uint64
	stackNumbers            map[uint64]uint64
	last                    []uint64 // the frames of the stack before
	refs, steps             int
}

func newGrowthWriter() *growthWriter {
	return &growthWriter{
		stringNumbers: make(map[string]uint64), frameNumbers: make(map[event.Frame]uint64), stackNumbers: make(map[uint64]uint64),
	}
}

func (w *growthWriter) number(v uint64) { w.body = binary.AppendUvarint(w.body, v) }

func (w *growthWriter) fixed(v uint64) { w.body = binary.LittleEndian.AppendUint64(w.body, v) }

// note is all that was written; nil where that is too much.
func (w *growthWriter) note() []byte {
	b := []byte{growthNoteVersion}
	for _, section := range []struct {
		count int
		of    []byte
	}{{len(w.stringNumbers), w.strings}, {len(w.frameNumbers), w.frames}, {len(w.stackNumbers), w.stacks}} {
		b = binary.AppendUvarint(b, uint64(section.count))
		b = append(b, section.of...)
	}
	b = append(b, w.body...)
	if len(b) > maxGrowthNote || w.refs > maxNoteRefs || w.steps > maxNoteSteps {
		return nil
	}
	return b
}

// text is the number of a string, from 1; 0 is the empty one.
func (w *growthWriter) text(s string) uint64 {
	if s == "" {
		return 0
	}
	n := w.stringNumbers[s]
	if n == 0 {
		n = uint64(len(w.stringNumbers) + 1)
		w.stringNumbers[s] = n
		w.strings = append(binary.AppendUvarint(w.strings, uint64(len(s))), s...)
	}
	return n
}

func (w *growthWriter) frame(f *event.Frame) uint64 {
	n, known := w.frameNumbers[*f]
	if known {
		return n
	}
	n = uint64(len(w.frameNumbers))
	w.frameNumbers[*f] = n
	for _, v := range [...]uint64{
		w.text(f.Kind), w.text(f.Name), w.text(f.Symbol), w.text(f.File), zigzag(uint64(f.Line)), flag(f.Inlined, 1),
		w.text(f.Module), w.text(f.BuildID), f.Address,
	} {
		w.frames = binary.AppendUvarint(w.frames, v)
	}
	return n
}

// stack is the number of a stack. Its outermost frames are often those of the one before.
func (w *growthWriter) stack(s *event.Stack) uint64 {
	if n, known := w.stackNumbers[s.ID]; known {
		return n
	}
	n := uint64(len(w.stackNumbers))
	w.stackNumbers[s.ID] = n
	frames := s.Frames()
	refs := make([]uint64, 0, min(len(frames), maxNoteDepth))
	for i := range frames[:cap(refs)] {
		refs = append(refs, w.frame(&frames[i]))
	}
	outer := 0
	for outer < min(len(refs), len(w.last)) && refs[len(refs)-1-outer] == w.last[len(w.last)-1-outer] {
		outer++
	}
	inner := refs[:len(refs)-outer]
	w.stacks = binary.AppendUvarint(binary.AppendUvarint(w.stacks, uint64(outer)), uint64(len(inner)))
	for _, f := range inner {
		w.stacks = binary.AppendUvarint(w.stacks, f)
	}
	w.last = refs
	w.refs += len(refs)
	return n
}

// A growthReader reads a note. Where something is not there, or too much, it gives zeros
// and is bad from then on.
type growthReader struct {
	b       []byte
	bad     bool
	strings []string
	stacks  *noteStacks
	steps   int
}

// noteStacks are the stacks of a note: their frames are made when somebody asks.
type noteStacks struct {
	frames []event.Frame
	refs   []uint32
	ends   []int // of the stacks, in refs
	begins []int
}

func (r *growthReader) fail() uint64 {
	r.b, r.bad = nil, true
	return 0
}

func (r *growthReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		return r.fail()
	}
	r.b = r.b[n:]
	return v
}

// most is a number that may be no larger.
func (r *growthReader) most(n uint64) uint64 {
	v := r.number()
	if v > n {
		return r.fail()
	}
	return v
}

// count is how many there are that follow, of which each has a byte at least.
func (r *growthReader) count() int { return int(r.most(uint64(len(r.b)))) }

// upTo is count, which may be no larger.
func (r *growthReader) upTo(most int) int {
	n := r.count()
	if n > most {
		return int(r.fail())
	}
	return n
}

func (r *growthReader) fixed() uint64 {
	if len(r.b) < 8 {
		return r.fail()
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// text is a string by its number.
func (r *growthReader) text(n uint64) string {
	switch {
	case n == 0:
		return ""
	case n > uint64(len(r.strings)):
		r.fail()
		return ""
	}
	return r.strings[n-1]
}

func (r *growthReader) bytes(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// define reads what is referred to.
func (r *growthReader) define() {
	for range r.count() {
		if r.bad {
			return
		}
		r.strings = append(r.strings, string(r.bytes(r.count())))
	}
	for range r.count() {
		if r.bad {
			return
		}
		r.stacks.frames = append(r.stacks.frames, event.Frame{
			Kind: r.text(r.number()), Name: r.text(r.number()), Symbol: r.text(r.number()), File: r.text(r.number()),
			Line: int(unzigzag(r.number())), Inlined: r.most(1) == 1,
			Module: r.text(r.number()), BuildID: r.text(r.number()), Address: r.number(),
		})
	}
	for range r.count() {
		if r.bad {
			return
		}
		r.defineStack()
	}
}

func (r *growthReader) defineStack() {
	s := r.stacks
	var last []uint32
	if n := len(s.ends); n > 0 {
		last = s.refs[s.begins[n-1]:s.ends[n-1]]
	}
	outer, inner := int(r.most(uint64(len(last)))), int(r.most(maxNoteDepth))
	if outer+inner > maxNoteDepth || len(s.refs)+outer+inner > maxNoteRefs {
		r.fail()
		return
	}
	s.begins = append(s.begins, len(s.refs))
	for range inner {
		f := r.number()
		if f >= uint64(len(s.frames)) {
			r.fail()
			return
		}
		s.refs = append(s.refs, uint32(f))
	}
	s.refs = append(s.refs, last[len(last)-outer:]...)
	s.ends = append(s.ends, len(s.refs))
}

// stack is the stack of a number, with the ID that it has.
func (r *growthReader) stack(n, id uint64) *event.Stack {
	s := r.stacks
	if n >= uint64(len(s.ends)) {
		r.fail()
		return nil
	}
	begin, end := s.begins[n], s.ends[n]
	return event.NewStack(id, func() []*event.Call {
		frames := make([]event.Frame, 0, end-begin)
		for _, f := range s.refs[begin:end] {
			frames = append(frames, s.frames[f])
		}
		return []*event.Call{event.NewCall(frames)}
	})
}
