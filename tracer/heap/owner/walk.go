// Package owner finds who holds objects of a Python process: the path of names that leads from a
// module or a local variable to each. It reads the interpreter's heap while the process goes on,
// and nothing in it is trusted: what is read is bounded, and each path is read a second time.
package owner

import (
	"context"
	"errors"
	"time"

	"ttmem/symbolize/python"
)

// errTooMuch means that a heap is larger than a walk may read.
var errTooMuch = errors.New("the Python heap is larger than what may be read of it")

// Limits bound a walk. Zero values are the defaults.
type Limits struct {
	// Objects and Bytes are how much is visited and read.
	Objects int
	Bytes   int64
	// Time is how long the search takes, and at most how long the second look.
	Time time.Duration
}

const (
	defaultObjects = 6 << 20
	defaultBytes   = 2 << 30
	defaultTime    = 10 * time.Second
	// confirmBytes is how much is read for the second look.
	confirmBytes = 1 << 30
)

// Cost is what a search took: the objects that were reached, and the bytes that were read.
type Cost struct {
	Objects int
	Bytes   int64
}

// A Heap is the Python heap of a process.
type Heap struct {
	Memory Memory
	// Runtime has the facts of the interpreter's file, which is mapped at Bias.
	Runtime *python.Runtime
	Bias    uint64
	// Symbols returns the address of an exported object in the file; 0 if there is none.
	Symbols func(name string) uint64
	// IsTarget reports whether instances of a type are searched, by the names of the type and of
	// its metaclass.
	IsTarget func(name, metaclass string) bool
	// User reports whether a module belongs to the user's program, by its name and file.
	User func(name, file string) bool
}

// A walk is one search.
type walk struct {
	*pages
	*Heap
	runtime *python.Runtime
	heap    python.Heap
	kinds   map[uint64]kind
	types   map[uint64]*typ
	nodes   []node
	seen    table
	limit   int
	queue   [lastCost + 1][]uint32
	targets []uint32
	// from is the node whose references are read, and cost what one of them costs.
	from uint32
	cost uint8
	emit func(object uint64, s step, extra uint8)
}

// A node is an object that was reached, with the reference that leads to it.
type node struct {
	object uint64
	// ref says which reference of its kind it is: an index, or the address of a str or a key.
	ref  uint64
	from uint32
	kind stepKind
	cost uint8
}

// step is a reference.
type step struct {
	kind stepKind
	ref  uint64
}

// lastCost is the highest cost of a path; higher ones count as this.
const lastCost = 255

// maxReferences is above any count of references; a freed object has a pointer there.
const maxReferences = 1 << 40

// noNode is before the first node of a path.
const noNode = ^uint32(0)

// An Owned is an object that was searched, and who holds it.
type Owned struct {
	Object uint64
	Type   string
	Path   Path
}

// Find returns the objects that were searched and reached, with one path for each: the shortest
// one, where those from the user's own modules and functions come first. enough is called for
// each, and ends the search if it returns true. The error says why the search ended before all
// was read; what was found is right in any case.
func (h *Heap) Find(ctx context.Context, limits Limits, enough func(object uint64) bool) (found []Owned, cost Cost, err error) {
	w, err := h.newWalk(ctx, &limits)
	if err != nil {
		return nil, cost, err
	}
	if err := w.addRoots(); err != nil {
		return nil, cost, err
	}
	err = w.run(enough, time.Now().Add(limits.Time))
	cost = Cost{len(w.nodes), limits.Bytes - w.left + confirmBytes}
	w.forget() // every path is read again
	w.left, w.err = confirmBytes, nil
	confirmed := w.confirm(time.Now().Add(limits.Time))
	for _, at := range w.targets {
		n := &w.nodes[at]
		if w.isTrue(at, confirmed) {
			found = append(found, Owned{n.object, w.nameOfType(n.object), w.path(at)})
		}
	}
	cost.Bytes -= w.left
	return found, cost, err
}

func (h *Heap) newWalk(ctx context.Context, limits *Limits) (*walk, error) {
	offsets, ok := python.HeapOf(h.Runtime.Minor)
	if !ok {
		return nil, errors.New("owners in a Python of this version are not supported")
	}
	if limits.Objects == 0 {
		limits.Objects = defaultObjects
	}
	if limits.Bytes == 0 {
		limits.Bytes = defaultBytes
	}
	if limits.Time == 0 {
		limits.Time = defaultTime
	}
	w := &walk{
		pages: newPages(ctx, h.Memory, limits.Bytes), Heap: h, runtime: h.Runtime, heap: offsets,
		kinds: make(map[uint64]kind), types: make(map[uint64]*typ), limit: limits.Objects,
	}
	w.emit = w.reach
	for name, k := range exported {
		if at := h.Symbols(name); at != 0 {
			w.kinds[at+h.Bias] = k
		}
	}
	return w, nil
}

// nameOfType returns the name of the type of an object.
func (w *walk) nameOfType(object uint64) string {
	if t := w.typeOf(w.word(object + 8)); t != nil {
		return t.name
	}
	return ""
}

// reach adds an object to those that were reached, or the better way to it, unless it is an atom.
func (w *walk) reach(object uint64, s step, extra uint8) {
	if object == 0 || object%8 != 0 {
		return
	}
	cost := uint8(min(int(w.cost)+int(extra), lastCost))
	reached := node{object: object, ref: s.ref, from: w.from, kind: s.kind, cost: cost}
	if at, known := w.seen.find(w.nodes, object); known {
		if w.nodes[at].cost > cost { // and so its references were not read yet
			w.nodes[at] = reached
			w.queue[cost] = append(w.queue[cost], at)
		}
		return
	}
	t := w.typeOf(w.word(object + 8))
	if references := w.word(object); t == nil || t.kind == atom && !t.target || references == 0 || references >= maxReferences {
		return
	}
	if len(w.nodes) >= w.limit {
		w.err = errTooMuch
		return
	}
	at := uint32(len(w.nodes))
	w.nodes = append(w.nodes, reached)
	w.seen.add(w.nodes, at)
	w.queue[cost] = append(w.queue[cost], at)
}

// run reads the references of objects, those with short paths first.
func (w *walk) run(enough func(object uint64) bool, until time.Time) error {
	for cost := range lastCost + 1 {
		if cost == collectedCost {
			w.from, w.cost = noNode, collectedCost
			w.collected()
		}
		for i := 0; i < len(w.queue[cost]); i++ {
			at := w.queue[cost][i]
			n := w.nodes[at]
			if int(n.cost) != cost {
				continue // a better way was found
			}
			if w.isOver(until) {
				return w.err
			}
			if t := w.typeOf(w.word(n.object + 8)); t != nil && t.target {
				w.targets = append(w.targets, at)
				if enough(n.object) {
					return nil
				}
			}
			w.from, w.cost = at, n.cost
			w.references(n.object)
			if w.err != nil {
				return w.err
			}
		}
		w.queue[cost] = nil
	}
	return w.err
}

// isOver reports whether a search ends. Objects that share their items cost time without any
// reading.
func (w *walk) isOver(until time.Time) bool {
	switch {
	case w.err != nil:
	case w.ctx.Err() != nil:
		w.err = w.ctx.Err()
	case time.Now().After(until):
		w.err = errTooMuch
	}
	return w.err != nil
}

// confirm reads the paths to the targets again, and returns the nodes that are still reached in
// the same way.
func (w *walk) confirm(until time.Time) map[uint32]bool {
	type child struct {
		object uint64
		step
	}
	children := make(map[uint32]map[child]uint32)
	for _, at := range w.targets {
		for at != noNode {
			n := &w.nodes[at]
			if children[n.from] == nil {
				children[n.from] = make(map[child]uint32)
			}
			c := child{n.object, step{n.kind, n.ref}}
			if _, known := children[n.from][c]; known {
				break // and so are those before it
			}
			children[n.from][c] = at
			at = n.from
		}
	}
	is := make(map[uint32]bool)
	for from, of := range children {
		if w.isOver(until) {
			return nil
		}
		w.emit = func(object uint64, s step, _ uint8) {
			if at, ok := of[child{object, s}]; ok {
				is[at] = true
			}
		}
		if from == noNode {
			w.cost = 0
			w.roots()
			w.collected()
		} else {
			w.references(w.nodes[from].object)
		}
	}
	w.emit = w.reach
	return is
}

// isTrue reports whether all references to a node were confirmed.
func (w *walk) isTrue(at uint32, confirmed map[uint32]bool) bool {
	for ; at != noNode; at = w.nodes[at].from {
		if !confirmed[at] {
			return false
		}
	}
	return true
}

// A table has the nodes by their objects, in half of the memory of a map.
type table struct {
	slots []uint32 // number of the node, from 1
	used  int
}

func (t *table) slot(nodes []node, object uint64) *uint32 {
	i := object * 0x9e3779b97f4a7c15 >> 20 % uint64(len(t.slots))
	for t.slots[i] != 0 && nodes[t.slots[i]-1].object != object {
		if i++; i == uint64(len(t.slots)) {
			i = 0
		}
	}
	return &t.slots[i]
}

// find returns the node of an object.
func (t *table) find(nodes []node, object uint64) (at uint32, ok bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	number := *t.slot(nodes, object)
	return number - 1, number != 0
}

// add adds the node at a place.
func (t *table) add(nodes []node, at uint32) {
	if t.used*4 >= len(t.slots)*3 {
		t.slots = make([]uint32, max(1<<12, len(t.slots)*2))
		t.used = 0
		for i := range nodes[:at] {
			*t.slot(nodes, nodes[i].object) = uint32(i) + 1
			t.used++
		}
	}
	*t.slot(nodes, nodes[at].object) = at + 1
	t.used++
}
