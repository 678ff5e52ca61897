package recording

import (
	"sync"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A dictionary has the strings, frames and stacks that were defined since the last reset. Each
// has a number. Each method writes or reads one occurrence; the first one is the definition.
//
// Stacks that were read use their dictionary at any time, even while the next block is read.
type dictionary struct {
	c *codec.Codec
	// defined is the number of defined frames, refs the number of frames in all stacks.
	defined, refs int
	// blockRefs is the number of frames in the stacks that the block defines, with what else counts as a
	// frame, and mostBlockRefs the limit for reading.
	blockRefs, mostBlockRefs int
	// costs is how much each defined frame counts in blockRefs.
	costs []uint16
	// last are the frames of the latest defined stack, address is the address of the latest
	// frame.
	last    []uint32
	address uint64

	writing
	reading
}

// writing has the numbers of written definitions.
type writing struct {
	frameNumbers map[event.Frame]uint32
	stackNumbers map[uint64]int // from 1, by ID
	// callFrames are the frames of recently written calls. Most stacks consist of such calls.
	callFrames map[*event.Call][]uint32
	fresh      []*event.Frame // numbered, but not yet defined
}

// reading has the definitions that were read, by number.
type reading struct {
	mu     sync.Mutex
	frames []event.Frame
	hashes []uint64 // of the frames
	stacks []*event.Stack
	// byID has the first of equal stacks, which several processes may have.
	byID map[uint64]*event.Stack
	// calls are the calls that were requested so far, by their innermost frame.
	calls map[uint32]call
	lines *func(event.Frame) []event.Frame // of the reader
}

func newWriting() *dictionary {
	return &dictionary{c: codec.NewWriter(), writing: writing{
		frameNumbers: make(map[event.Frame]uint32), stackNumbers: make(map[uint64]int),
		callFrames: make(map[*event.Call][]uint32),
	}}
}

func newReading(lines *func(event.Frame) []event.Frame) *dictionary {
	return &dictionary{c: codec.NewReader(nil, nil), reading: reading{
		byID: make(map[uint64]*event.Stack), calls: make(map[uint32]call), lines: lines,
	}}
}

// full reports whether the block must end: the definitions must be reset, or the block needs much padding. The
// names and stacks of a program may grow without end; at a reset they take 40 MiB. One event cannot add more than
// the rest of each limit.
func (d *dictionary) full() bool {
	const part = 8
	strings, bytes := d.c.Texts()
	return strings >= maxStrings/part || bytes >= maxStringBytes/part || d.defined >= maxFrames/part ||
		len(d.stackNumbers) >= maxStacks/part || d.refs >= maxFrameRefs/part ||
		d.blockRefs >= maxBlockRefs*fullBytes
}

// text writes or reads a string.
func (d *dictionary) text(s *string) {
	if !d.c.Reads {
		written := (*s)[:min(len(*s), maxString)]
		if len(d.c.Data) > maxNewText {
			written = ""
		}
		d.c.Text(&written)
		d.charge(len(written) / refText)
		return
	}
	d.c.Text(s)
	d.charge(len(*s) / refText)
	if n, bytes := d.c.Texts(); len(*s) > maxString || n >= maxStrings || bytes > maxStringBytes {
		d.c.Fail()
	}
}

// stack writes or reads a stack. When a stack is first written, its frames are looked up.
func (d *dictionary) stack(s **event.Stack) {
	n, known := 0, len(d.stacks)
	if !d.c.Reads {
		n, known = d.stackNumbers[(*s).ID], len(d.stackNumbers)
	}
	if d.c.Below(&n, known+1); n > 0 {
		if d.c.Reads {
			*s = d.stacks[n-1]
		}
		return
	}
	if !d.c.Reads {
		d.stackNumbers[(*s).ID] = known + 1
		d.define(d.numbers(*s))
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known >= maxStacks {
		d.c.Fail()
		return
	}
	*s = d.known(d.define(nil))
	d.stacks = append(d.stacks, *s)
}

// define writes or reads the frames of a stack: the number of frames shared with the previous
// stack at each end, and the frames between.
func (d *dictionary) define(stack []uint32) []uint32 {
	inner, outer := 0, 0
	if !d.c.Reads {
		common := min(len(stack), len(d.last))
		for inner < common && stack[inner] == d.last[inner] {
			inner++
		}
		for outer < common-inner && stack[len(stack)-1-outer] == d.last[len(d.last)-1-outer] {
			outer++
		}
	}
	between := len(stack) - inner - outer
	d.c.Below(&inner, len(d.last)+1)
	d.c.Below(&outer, len(d.last)-inner+1)
	d.c.Below(&between, maxStackFrames-inner-outer+1)
	n := inner + between + outer
	if d.refs += n; d.refs > maxFrameRefs {
		d.c.Fail()
	}
	if d.c.Reads {
		if d.blockRefs+n > d.mostBlockRefs {
			d.c.Fail()
			return nil
		}
		stack = make([]uint32, n)
		copy(stack, d.last[:inner])
		copy(stack[inner+between:], d.last[len(d.last)-outer:])
	}
	for i := range between {
		if d.frame(&stack[inner+i]); d.c.Bad {
			return nil
		}
	}
	for _, f := range stack {
		d.charge(int(d.costs[f]))
	}
	if d.c.Bad {
		return nil
	}
	d.last = stack
	return stack
}

// charge adds to blockRefs.
func (d *dictionary) charge(n int) {
	if d.blockRefs += n; d.c.Reads && d.blockRefs > d.mostBlockRefs {
		d.c.Fail()
	}
}

// frame writes or reads the number of a frame, with its definition the first time.
func (d *dictionary) frame(number *uint32) {
	n := int(*number) + 1
	if n > d.defined {
		n = 0
	}
	if d.c.Below(&n, d.defined+1); n > 0 {
		*number = uint32(n - 1)
		return
	}
	if d.defined >= maxFrames {
		d.c.Fail()
		return
	}
	var f event.Frame
	if !d.c.Reads {
		f, d.fresh = *d.fresh[0], d.fresh[1:]
	}
	for _, s := range []*string{&f.Kind, &f.Name, &f.Symbol, &f.File, &f.Module, &f.Path, &f.BuildID} {
		d.text(s)
	}
	codec.Number(d.c, &f.Line)
	d.c.Bool(&f.Inlined)
	d.c.Delta(&f.Address, d.address)
	d.address = f.Address
	if d.c.Reads {
		*number = uint32(d.defined)
		d.frames = append(d.frames, f)
		d.hashes = append(d.hashes, hashFrame(&f))
	}
	cost := 1 + (min(len(f.Name), maxString)+min(len(f.File), maxString)+min(len(f.Module), maxString))/refText
	if f.Inlined {
		cost += inlinedRefs - 1
	}
	d.costs = append(d.costs, uint16(cost))
	d.defined++
}

// numbers returns the numbers of a stack's frames.
func (w *writing) numbers(s *event.Stack) []uint32 {
	var stack []uint32
	w.fresh = w.fresh[:0]
	for _, c := range s.Calls() {
		numbers, ok := w.callFrames[c]
		if !ok {
			for i := range c.Frames[:min(len(c.Frames), maxStackFrames-len(stack))] {
				numbers = append(numbers, w.number(&c.Frames[i]))
			}
			// A longer call is a whole stack from a file and belongs to that stack only.
			if len(c.Frames) <= 16 && len(numbers) == len(c.Frames) {
				if len(w.callFrames) == maxCalls { // programs that start anew have equal frames in other calls
					clear(w.callFrames)
				}
				w.callFrames[c] = numbers
			}
		}
		stack = append(stack, numbers[:min(len(numbers), maxStackFrames-len(stack))]...)
	}
	return stack
}

func (w *writing) number(f *event.Frame) uint32 {
	n, ok := w.frameNumbers[*f]
	if !ok {
		n = uint32(len(w.frameNumbers))
		w.frameNumbers[*f] = n
		w.fresh = append(w.fresh, f)
	}
	return n
}
