package web

import (
	"slices"

	"ttmem/aggregate/export"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// stacks are call stacks in one tree, from the outermost frame on. They store each name once.
type stacks struct {
	texts  *texts
	frames map[flameFrame]int32
	order  []flameFrame
	nodes  []flameNode
	index  map[flameEdge]int32
	// ends are the innermost nodes of each stack.
	ends map[*event.Stack]stackEnds
}

// stackEnds are the nodes of the innermost frame of a stack: folded, and with all frames.
type stackEnds struct{ folded, whole int32 }

// A flameFrame is a native function or a line of a Python function. A native function is one box
// for all its calls; their lines are in the nodes.
type flameFrame struct {
	kind               int
	name, file, module int
	line               int
	inlined            bool
}

// The kinds of frames in the page's data.
const (
	flameNative = iota
	flamePython
	flameOther
)

type flameNode struct {
	parent, frame int32
	// line is 0 if it is not known, and severalLines if it differs.
	line int
}

const severalLines = -1

type flameEdge struct{ parent, frame int32 }

func newStacks() *stacks {
	return &stacks{
		texts:  newTexts(),
		frames: make(map[flameFrame]int32),
		nodes:  make([]flameNode, 1), // the root
		index:  make(map[flameEdge]int32),
		ends:   make(map[*event.Stack]stackEnds),
	}
}

// add adds a stack, which may be nil, if it is new.
func (t *stacks) add(stack *event.Stack) stackEnds {
	ends, ok := t.ends[stack]
	if !ok {
		frames := export.Frames(stack)
		ends = stackEnds{t.addFrames(name.Fold(frames)), t.addFrames(frames)}
		t.ends[stack] = ends
	}
	return ends
}

// addFrames adds frames, innermost first, and returns the node of the innermost one.
func (t *stacks) addFrames(frames []event.Frame) (at int32) {
	for i := range slices.Backward(frames) {
		at = t.child(at, t.frame(&frames[i]), frames[i].Line)
	}
	return at
}

// below adds a frame that is no function below a node.
func (t *stacks) below(node int32, label string) int32 {
	return t.child(node, t.frame(&event.Frame{Name: label}), 0)
}

func (t *stacks) child(parent, frame int32, line int) int32 {
	edge := flameEdge{parent, frame}
	i, ok := t.index[edge]
	if !ok {
		i = int32(len(t.nodes))
		t.index[edge] = i
		t.nodes = append(t.nodes, flameNode{parent, frame, line})
	} else if n := &t.nodes[i]; n.line != line {
		n.line = severalLines
	}
	return i
}

func (t *stacks) frame(f *event.Frame) int32 {
	key := flameFrame{
		kind: flameOther, name: t.texts.of(export.FunctionName(f)), file: t.texts.of(f.File), module: t.texts.of(f.Module),
		inlined: f.Inlined,
	}
	switch f.Kind {
	case event.Native:
		key.kind = flameNative
	case event.Python:
		key.kind, key.line = flamePython, f.Line
	}
	i, ok := t.frames[key]
	if !ok {
		i = int32(len(t.order))
		t.frames[key] = i
		t.order = append(t.order, key)
	}
	return i
}

// stackData is the tree as pages have it. A frame has kind, name, file, module, line and inlined;
// names, files and modules are numbers of strings. A node has the distance to its parent, its
// frame and its line; the root is left out.
type stackData struct {
	Strings []string `json:"strings"`
	Frames  []int64  `json:"frames"`
	Nodes   []int64  `json:"nodes"`
}

// data returns the tree for a page.
func (t *stacks) data() stackData {
	d := stackData{Strings: t.texts.list, Frames: []int64{}, Nodes: []int64{}}
	for _, f := range t.order {
		inlined := int64(0)
		if f.inlined {
			inlined = 1
		}
		d.Frames = append(d.Frames, int64(f.kind), int64(f.name), int64(f.file), int64(f.module), int64(f.line), inlined)
	}
	for i, n := range t.nodes[1:] {
		d.Nodes = append(d.Nodes, int64(i+1)-int64(n.parent), int64(n.frame), int64(n.line))
	}
	return d
}
