package recording

import (
	"hash/fnv"
	"slices"
	"sync"

	"ttmem/tracer/event"
)

// A dictionary is what a recording has defined, up to where the definitions
// begin anew. The stacks that were given away use it at any time, also while the
// next block is read.
type dictionary struct {
	mu sync.Mutex
	// strings have the empty one first.
	strings []string
	frames  []event.Frame
	// paths are where files lay last, by build id.
	paths map[string]string
	refs  []uint32 // the frames of all stacks
	// calls are those that somebody asked for, by their innermost frame.
	calls map[uint32]call
	lines *func(event.Frame) []event.Frame // of the reader

	textBytes int
	hashes    []uint64 // of the frames
	stacks    []*event.Stack
	// byID has the first of equal stacks: those of several processes may be.
	byID                   map[uint64]*event.Stack
	last                   stackAt
	usedFrames, usedStacks int
}

// stackAt is where the frames of a stack are.
type stackAt struct{ begin, end int }

func newDictionary(lines *func(event.Frame) []event.Frame) *dictionary {
	return &dictionary{
		lines:   lines,
		strings: []string{""}, byID: make(map[uint64]*event.Stack), calls: make(map[uint32]call),
		paths: make(map[string]string),
	}
}

// read takes the definitions of a block, and reports whether they make sense.
func (d *dictionary) read(sections *[numSections]cursor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := &sections[sectionStrings]; !c.done(); {
		s := c.bytes()
		d.textBytes += len(s)
		if c.bad || len(s) > maxString || len(d.strings) >= maxStrings || d.textBytes > maxStringBytes {
			return false
		}
		d.strings = append(d.strings, string(s))
	}
	modules := &sections[sectionModules]
	moved := modules.uvarint() // the next frame whose file lies elsewhere
	for c := &sections[sectionFrames]; !c.done(); {
		if len(d.frames) >= maxFrames || !d.readFrame(c) {
			return false
		}
		f := &d.frames[len(d.frames)-1]
		if !modules.bad && moved == uint64(len(d.frames)-1) {
			d.paths[f.BuildID] = d.string(modules)
			moved = modules.uvarint()
		}
		f.Path = d.paths[f.BuildID]
	}
	for c := &sections[sectionStacks]; !c.done(); {
		if len(d.stacks) >= maxStacks || !d.readStack(c) {
			return false
		}
	}
	return true
}

func (d *dictionary) string(c *cursor) string { return d.strings[c.below(len(d.strings))] }

func (d *dictionary) readFrame(c *cursor) bool {
	var before event.Frame
	if n := len(d.frames); n > 0 {
		before = d.frames[n-1]
	}
	bits := c.uvarint()
	f := event.Frame{
		Kind: event.Native, Inlined: bits&frameInlined != 0,
		File: before.File, Module: before.Module, BuildID: before.BuildID,
	}
	if bits&framePython != 0 {
		f.Kind = event.Python
	}
	if bits&frameOtherKind != 0 {
		f.Kind = d.string(c)
	}
	f.Name, f.Symbol = d.string(c), d.string(c)
	if bits&frameSameFile == 0 {
		f.File = d.string(c)
	}
	f.Line = int(c.varint())
	if bits&frameSameImage == 0 {
		f.Module, f.BuildID = d.string(c), d.string(c)
	}
	f.Address = c.delta(before.Address)
	if c.bad || bits > frameInlined|frameSameFile|frameSameImage|framePython|frameOtherKind {
		return false
	}
	d.frames = append(d.frames, f)
	d.hashes = append(d.hashes, hashFrame(&f))
	return true
}

// readStack reads the definition of a stack.
func (d *dictionary) readStack(c *cursor) bool {
	length := d.last.end - d.last.begin
	inner := c.below(length + 1)
	outer := c.below(length - inner + 1)
	between := c.below(maxStackFrames + 1)
	n := inner + outer + between
	if c.bad || n > maxStackFrames || len(d.refs)+n > maxFrameRefs {
		return false
	}
	begin := len(d.refs)
	d.refs = append(d.refs, d.refs[d.last.begin:d.last.begin+inner]...)
	for range between {
		f := d.usedFrames
		if code := c.below(len(d.frames) + 1); code != 0 {
			f = code - 1
		} else {
			d.usedFrames++
		}
		if c.bad || f >= len(d.frames) {
			return false
		}
		d.refs = append(d.refs, uint32(f))
	}
	d.refs = append(d.refs, d.refs[d.last.end-outer:d.last.end]...)
	d.last = stackAt{begin, len(d.refs)}

	id := uint64(n)
	for _, f := range d.refs[begin:] {
		id = mixed(id, d.hashes[f])
	}
	id |= 1 // never 0
	stack := d.byID[id]
	if stack == nil {
		at := d.last
		stack = event.NewStack(id, func() []*event.Call { return d.callsAt(at) })
		d.byID[id] = stack
	}
	d.stacks = append(d.stacks, stack)
	return true
}

// hashFrame is the same for equal frames, in all files.
func hashFrame(f *event.Frame) uint64 {
	h := fnv.New64a()
	b := make([]byte, 0, 256)
	for _, s := range [...]string{f.Kind, f.Name, f.Symbol, f.File, f.Module, f.BuildID} {
		b = appendString(b, s)
	}
	b = appendUvarint(b, uint64(f.Line))
	b = appendUvarint(b, f.Address)
	if f.Inlined {
		b = append(b, 1)
	}
	_, _ = h.Write(b)
	return h.Sum64()
}

// call is a call that stacks share.
type call struct {
	shown  *event.Call
	frames []uint32
}

// callsAt makes the calls of a stack: a frame is one, with the functions before
// it that the compiler put into it.
func (d *dictionary) callsAt(at stackAt) []*event.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var calls []*event.Call
	frames := d.refs[at.begin:at.end]
	for len(frames) > 0 {
		n := 1
		for n < len(frames) && d.frames[frames[n-1]].Inlined {
			n++
		}
		calls = append(calls, d.call(frames[:n]))
		frames = frames[n:]
	}
	return calls
}

// call is the call of these frames.
func (d *dictionary) call(frames []uint32) *event.Call {
	if c := d.calls[frames[0]]; slices.Equal(c.frames, frames) {
		return c.shown
	}
	known := make([]event.Frame, len(frames))
	for i, f := range frames {
		known[i] = d.frames[f]
	}
	if *d.lines != nil && len(known) == 1 {
		known = (*d.lines)(known[0])
	}
	c := event.NewCall(known)
	d.calls[frames[0]] = call{c, slices.Clone(frames)} // refs may move
	return c
}

// mixed adds the hash of a frame to that of those before.
func mixed(id, frame uint64) uint64 {
	id = (id ^ frame) * 0x9e3779b97f4a7c15
	return id ^ id>>29
}
