// Package owner finds who holds objects of a Python process: the path of names that leads from a
// module or a local variable to each. It reads the interpreter's heap while the process goes on,
// and nothing in it is trusted: what is read is bounded, and each path is read a second time.
// It is not part of ttmem's Go library: it changes without notice.
package owner

import (
	"cmp"
	"fmt"
	"time"

	"ttmem/symbolize/python"
)

// A search ends early at limits of work, which do not depend on how busy the host is. tooMany is the
// error.
type tooMany struct {
	limit int64
	what  string
}

func (e tooMany) Error() string { return fmt.Sprintf("more than %d %s", e.limit, e.what) }

// Limits bound a walk. Zero values are the defaults.
type Limits struct {
	// Objects and Bytes are how much is visited and read, and References how many are followed:
	// objects can share their items.
	Objects    int
	Bytes      int64
	References int64
	// Time is how long the search takes, and at most how long the second look.
	Time time.Duration
}

const (
	defaultObjects    = 6 << 20
	defaultBytes      = 8 << 30
	defaultReferences = 1 << 29
	// defaultTime is the last resort: a search takes seconds of a processor, of which a busy host
	// has few.
	defaultTime = 3 * time.Minute
	// confirmBytes is how much is read for the second look.
	confirmBytes = 1 << 30
	// maxTargets bounds the objects that were searched and reached.
	maxTargets = 1 << 20
)

// A Heap is the Python heap of a process.
type Heap struct {
	memory *pages
	// Runtime has the facts of the interpreter's file, which is mapped at Bias.
	Runtime *python.Runtime
	Bias    uint64
	// Symbols returns the address of an exported object in the file.
	Symbols func(name string) (address uint64, ok bool)
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
	types   types
	nodes   nodes
	limits  Limits
	// followed is how many references were followed, and begun when.
	followed int64
	begun    time.Time
	// missed is why some of what was reached was not followed.
	missed  error
	queue   [lastCost + 1][]uint32
	targets []uint32
	// from is the node whose references are read, and cost what one of them costs.
	from uint32
	cost uint8
	emit func(object uint64, s step, extra uint8)
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

// An Owned is an object that was searched, and who holds it.
type Owned struct {
	Object uint64
	Path   Path
}

// Find returns the objects that were searched and reached, with one path for each: the shortest
// one, where those from the user's own modules and functions come first. enough is called for
// each, and ends the search if it returns true. The error says why not all was read; what was found is
// right in any case.
func (h *Heap) Find(limits Limits, enough func(object uint64) bool) (found []Owned, cost Cost, err error) {
	limits.Objects = min(cmp.Or(limits.Objects, defaultObjects), maxNodes-1)
	limits.Bytes = cmp.Or(limits.Bytes, defaultBytes)
	limits.References = cmp.Or(limits.References, defaultReferences)
	limits.Time = cmp.Or(limits.Time, defaultTime)
	w := h.newWalk(limits)
	w.begin(limits.Bytes)
	if err := w.addRoots(); err != nil {
		return nil, cost, err
	}
	if w.run(enough) {
		w.missed = nil
	}
	read := limits.Bytes - w.Left
	err = cmp.Or(w.begin(confirmBytes), w.missed)
	for _, at := range w.confirm() {
		found = append(found, Owned{w.nodes.at(at).object, w.path(at)})
	}
	return found, Cost{Objects: w.nodes.n, Bytes: read + confirmBytes - w.Left}, cmp.Or(err, w.err)
}

// begin begins a look, which may read so many bytes. It returns why the one before ended early.
func (w *walk) begin(bytes int64) (before error) {
	w.followed, w.begun = 0, time.Now()
	return w.allow(bytes)
}

func (h *Heap) newWalk(limits Limits) *walk {
	w := &walk{pages: h.memory, Heap: h, runtime: h.Runtime, heap: h.Runtime.Heap, kinds: make(map[uint64]kind), limits: limits}
	w.types.byAddress = make(map[uint64]*typ)
	w.emit = w.reach
	for name, k := range exported {
		if at, ok := h.Symbols(name); ok {
			w.kinds[at+h.Bias] = k
		}
	}
	return w
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
	// most objects that are no node are atoms
	t := w.typeOf(w.word(object + 8))
	if t == nil || t.kind == atom && !t.target {
		return
	}
	cost := uint8(min(int(w.cost)+int(extra), lastCost))
	reached := node{object: object, ref: s.ref, from: w.from, kind: s.kind, cost: cost, typ: t.number}
	if at, known := w.nodes.find(object); known {
		if n := w.nodes.at(at); n.cost > cost { // and so its references were not read yet
			*n = reached
			w.queue[cost] = append(w.queue[cost], at)
		}
		return
	}
	if references := w.word(object); references == 0 || references >= maxReferences {
		return
	}
	if w.nodes.n >= w.limits.Objects {
		w.err = tooMany{int64(w.limits.Objects), "Python objects"}
		return
	}
	w.queue[cost] = append(w.queue[cost], w.nodes.add(reached))
}

// run reads the references of objects, those with short paths first. It returns true if it had enough.
func (w *walk) run(enough func(object uint64) bool) bool {
	for cost := range lastCost + 1 {
		if cost == collectedCost {
			w.from, w.cost = noNode, collectedCost
			w.collected()
		}
		for i := 0; i < len(w.queue[cost]); i++ {
			at := w.queue[cost][i]
			n := *w.nodes.at(at)
			if int(n.cost) != cost {
				continue // a better way was found
			}
			if w.isOver(1) {
				return false
			}
			t := w.types.list[n.typ]
			if t.target {
				if len(w.targets) >= maxTargets {
					w.err = tooMany{maxTargets, "tensors"}
					return false
				}
				w.targets = append(w.targets, at)
				if enough(n.object) {
					return true
				}
			}
			w.from, w.cost = at, n.cost
			w.references(n.object, t)
		}
		w.queue[cost] = nil
	}
	return false
}

// isOver reports whether a look ends, before n more references are followed.
func (w *walk) isOver(n int64) bool {
	const sometimes = 1 << 13
	before := w.followed
	w.followed += n
	switch {
	case w.err != nil:
	case w.followed > w.limits.References:
		w.err = tooMany{w.limits.References, "references"}
	case before/sometimes != w.followed/sometimes && time.Since(w.begun) > w.limits.Time:
		w.err = fmt.Errorf("stopped after %.0f s", w.limits.Time.Seconds())
	}
	return w.err != nil
}

// cut notes that not all of something is followed.
func (w *walk) cut(why error) { w.missed = cmp.Or(w.missed, why) }
