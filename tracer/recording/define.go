package recording

import (
	"slices"

	"ttmem/tracer/event"
)

// definitions are the strings, frames and stacks that a file has defined, each once. New ones
// are written at the beginning of the block.
type definitions struct {
	strings                map[string]uint32
	frames                 map[event.Frame]uint32
	stacks                 map[uint64]uint32
	stringBytes, frameRefs int
	// usedFrames is the number of frames that stacks have referred to, usedStacks the number
	// of stacks that events have referred to: the numbers of the next new ones.
	usedFrames, usedStacks uint32

	// calls are the frames of known calls, of which most stacks consist.
	calls map[*event.Call][]uint32
	// lastFrame is the last frame that was defined, and last the frames of the last stack.
	lastFrame   event.Frame
	last, spare []uint32

	// sections are strings, frames, stacks and modules, to be written.
	sections [numSections][]byte
	// paths are the last written paths of files, by build id.
	paths map[string]string
}

func (d *definitions) init() {
	d.strings = make(map[string]uint32)
	d.frames = make(map[event.Frame]uint32)
	d.stacks = make(map[uint64]uint32)
	d.calls = make(map[*event.Call][]uint32)
	d.paths = make(map[string]string)
	d.reset()
}

// reset forgets the definitions. The sections must have been written.
func (d *definitions) reset() {
	clear(d.strings)
	clear(d.frames)
	clear(d.stacks)
	clear(d.calls)
	clear(d.paths)
	d.strings[""] = 0
	d.stringBytes, d.frameRefs, d.usedFrames, d.usedStacks = 0, 0, 0, 0
	d.lastFrame, d.last = event.Frame{}, d.last[:0]
}

// full reports whether the definitions must be reset. The other half of each limit is more
// than one event can add.
func (d *definitions) full() bool {
	return len(d.strings) >= maxStrings/2 || d.stringBytes >= maxStringBytes/2 ||
		len(d.frames) >= maxFrames/2 || len(d.stacks) >= maxStacks/2 || d.frameRefs >= maxFrameRefs/2
}

func (d *definitions) pending() int {
	n := 0
	for _, s := range d.sections {
		n += len(s)
	}
	return n
}

// string returns the number of a string; 0 is the empty one.
func (d *definitions) string(s string) uint32 {
	if s == "" {
		return 0
	}
	if i, ok := d.strings[s]; ok {
		return i
	}
	s = s[:min(len(s), maxString)]
	if i, ok := d.strings[s]; ok {
		return i
	}
	if len(d.sections[sectionStrings]) > maxNewText {
		return 0
	}
	i := uint32(len(d.strings))
	d.strings[s] = i
	d.stringBytes += len(s)
	d.sections[sectionStrings] = appendString(d.sections[sectionStrings], s)
	return i
}

// The bits at the beginning of a frame's definition.
const (
	framePython    = 1 << 0
	frameOtherKind = 1 << 1 // neither native nor Python: the kind follows
	frameInlined   = 1 << 2
	frameSameFile  = 1 << 3 // as in the previous definition
	frameSameImage = 1 << 4 // module and build id as in the previous definition
)

// frame returns the number of a frame.
func (d *definitions) frame(f *event.Frame) uint32 {
	if i, ok := d.frames[*f]; ok {
		return i
	}
	var bits uint64
	switch f.Kind {
	case event.Native:
	case event.Python:
		bits |= framePython
	default:
		bits |= frameOtherKind
	}
	if f.Inlined {
		bits |= frameInlined
	}
	d.module(f)
	if f.File == d.lastFrame.File {
		bits |= frameSameFile
	}
	if f.Module == d.lastFrame.Module && f.BuildID == d.lastFrame.BuildID {
		bits |= frameSameImage
	}
	b := appendUvarint(d.sections[sectionFrames], bits)
	text := func(s string) { b = appendUvarint(b, uint64(d.string(s))) }
	if bits&frameOtherKind != 0 {
		text(f.Kind)
	}
	text(f.Name)
	text(f.Symbol)
	if bits&frameSameFile == 0 {
		text(f.File)
	}
	b = appendUvarint(b, zigzag(int64(f.Line)))
	if bits&frameSameImage == 0 {
		text(f.Module)
		text(f.BuildID)
	}
	d.sections[sectionFrames] = appendDelta(b, f.Address, d.lastFrame.Address)
	d.lastFrame = *f
	i := uint32(len(d.frames))
	d.frames[*f] = i
	return i
}

// module writes the path of the next frame's file, unless it is the last one of its build id.
// Readers find lines in the file.
func (d *definitions) module(f *event.Frame) {
	if d.paths[f.BuildID] == f.Path {
		return
	}
	d.paths[f.BuildID] = f.Path
	path := uint64(d.string(f.Path))
	b := appendUvarint(d.sections[sectionModules], uint64(len(d.frames)))
	d.sections[sectionModules] = appendUvarint(b, path)
}

// stack returns the number of a stack. Its frames are looked up the first time.
func (d *definitions) stack(s *event.Stack) uint32 {
	if i, ok := d.stacks[s.ID]; ok {
		return i
	}
	i := uint32(len(d.stacks))
	d.stacks[s.ID] = i
	d.define(s.Calls())
	return i
}

// define writes a stack: the number of frames that it shares with the previous one at each
// end, and the frames between.
func (d *definitions) define(calls []*event.Call) {
	stack := d.spare[:0]
	for _, c := range calls {
		stack = d.call(stack, c)
	}
	stack = stack[:min(len(stack), maxStackFrames)]
	last := d.last
	common := min(len(stack), len(last))
	inner := 0
	for inner < common && stack[inner] == last[inner] {
		inner++
	}
	outer := 0
	for outer < common-inner && stack[len(stack)-1-outer] == last[len(last)-1-outer] {
		outer++
	}
	between := stack[inner : len(stack)-outer]

	b := d.sections[sectionStacks]
	b = appendUvarint(b, uint64(inner))
	b = appendUvarint(b, uint64(outer))
	b = appendUvarint(b, uint64(len(between)))
	for _, f := range between {
		if f == d.usedFrames {
			d.usedFrames++
			b = append(b, 0)
		} else {
			b = appendUvarint(b, uint64(f)+1)
		}
	}
	d.sections[sectionStacks] = b
	d.spare, d.last = last, stack
	d.frameRefs += len(stack)
}

// call appends the numbers of the frames of a call.
func (d *definitions) call(stack []uint32, c *event.Call) []uint32 {
	if numbers, ok := d.calls[c]; ok {
		return append(stack, numbers...)
	}
	begin := len(stack)
	for i := range c.Frames[:min(len(c.Frames), maxStackFrames)] {
		stack = append(stack, d.frame(&c.Frames[i]))
	}
	// Longer calls are whole stacks that were read from a file, each of one stack.
	if len(stack)-begin <= 16 {
		d.calls[c] = slices.Clone(stack[begin:])
	}
	return stack
}
