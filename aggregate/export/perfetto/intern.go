package perfetto

import (
	"cmp"
	"encoding/hex"
	"slices"

	"ttmem/aggregate/export"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// Fields of InternedData, which are also the kinds of interned values.
const (
	eventNames       = 2
	functionNames    = 5
	frames           = 6
	callstacks       = 7
	annotationNames  = 3
	buildIDs         = 16
	mappingPaths     = 17
	sourcePaths      = 18
	mappings         = 19
	internedIID      = 1 // of each kind
	internedString   = 2
	callstackFrames  = 2
	frameFunction    = 2
	frameMapping     = 3
	framePC          = 4
	frameSource      = 5
	frameLine        = 6
	mappingBuildID   = 2
	mappingPath      = 7
	noStackFrameName = "[no stack]"
)

// An interner gives numbers to values, and writes each value into the packet that names it first.
type interner struct {
	texts    map[internedText]uint64
	mappings map[[2]uint64]uint64
	frames   map[frame]uint64
	stacks   map[stackKey]uint64
	names    map[uint64]uint64 // of call sites, by stack
	// fresh is the InternedData of the next packet.
	fresh message
}

type internedText struct {
	kind int
	text string
}

// A frame is a Frame of the format, by the numbers of its values.
type frame struct{ function, mapping, pc, source, line uint64 }

// A stackKey is a call stack below a root; "" is none.
type stackKey struct {
	id   uint64
	root string
}

func newInterner() interner {
	return interner{
		texts: make(map[internedText]uint64), mappings: make(map[[2]uint64]uint64), frames: make(map[frame]uint64),
		stacks: make(map[stackKey]uint64), names: make(map[uint64]uint64),
	}
}

// bytes returns the number of a text of a kind, which may have any bytes.
func (x *interner) bytes(kind int, text string) uint64 {
	key := internedText{kind, text}
	id, ok := x.texts[key]
	if !ok {
		id = uint64(len(x.texts) + 1)
		x.texts[key] = id
		var m message
		m.uint(internedIID, id)
		m.text(internedString, text)
		x.fresh.message(kind, m)
	}
	return id
}

// text returns the number of a name of a traced program.
func (x *interner) text(kind int, text string) uint64 { return x.bytes(kind, event.Printable(text)) }

func (x *interner) mapping(path, buildID string) uint64 {
	raw, _ := hex.DecodeString(buildID)
	key := [2]uint64{x.text(mappingPaths, path), x.bytes(buildIDs, string(raw))}
	id, ok := x.mappings[key]
	if !ok {
		id = uint64(len(x.mappings) + 1)
		x.mappings[key] = id
		var m message
		m.uint(internedIID, id)
		m.uint(mappingBuildID, key[1])
		m.uint(mappingPath, key[0])
		x.fresh.message(mappings, m)
	}
	return id
}

// frame returns the number of a frame. Viewers tell frames of a mapping apart by address and name:
// that of a Python function has its line.
func (x *interner) frame(f *event.Frame) uint64 {
	key := frame{function: x.text(functionNames, export.FrameText(f)), line: uint64(max(f.Line, 0))}
	if f.Kind == event.Native {
		key.mapping, key.pc = x.mapping(f.Module, f.BuildID), f.Address
	} else {
		key.mapping = x.mapping(cmp.Or(f.Kind, "ttmem"), "")
	}
	if f.File != "" {
		key.source = x.text(sourcePaths, f.File)
	}
	id, ok := x.frames[key]
	if !ok {
		id = uint64(len(x.frames) + 1)
		x.frames[key] = id
		var m message
		m.uint(internedIID, id)
		m.uint(frameFunction, key.function)
		m.uint(frameMapping, key.mapping)
		m.uint(framePC, key.pc)
		if key.source != 0 {
			m.uint(frameSource, key.source)
			m.uint(frameLine, key.line)
		}
		x.fresh.message(frames, m)
	}
	return id
}

// stack returns the number of a call stack, below a frame named root if that is not "".
func (x *interner) stack(s *event.Stack, root string) uint64 {
	key := stackKey{memory.StackID(s), root}
	id, ok := x.stacks[key]
	if ok {
		return id
	}
	var list []uint64
	if root != "" {
		list = append(list, x.frame(&event.Frame{Name: root}))
	}
	calls := s.Frames()
	if len(calls) == 0 {
		calls = []event.Frame{{Name: noStackFrameName}}
	}
	for _, f := range slices.Backward(calls) {
		list = append(list, x.frame(&f))
	}
	id = uint64(len(x.stacks) + 1)
	x.stacks[key] = id
	var m message
	m.uint(internedIID, id)
	m.list(callstackFrames, list)
	x.fresh.message(callstacks, m)
	return id
}

// name returns the number of the name of a call site, or of another text if it has none.
func (x *interner) name(s *event.Stack, other string) uint64 {
	stack := memory.StackID(s)
	if stack == 0 {
		return x.text(eventNames, other)
	}
	id, ok := x.names[stack]
	if !ok {
		id = x.text(eventNames, cmp.Or(name.Of(s.Frames()).String(), other))
		x.names[stack] = id
	}
	return id
}
