package owner

import (
	"cmp"
	"fmt"
)

// Where paths begin: the costs of roots put the user's own names first.
const (
	mainCost      = 0
	userCost      = 2
	localsCost    = 6
	innerCost     = 4 // more for each function that another one called: its variables change soon
	threadCost    = 20
	libraryCost   = 40
	collectedCost = 200
)

// maxThreads and maxFrames bound the threads, and the frames of one.
const maxThreads, maxFrames = 1 << 16, 1 << 16

// What of a thread is a root.
const (
	threadDict uint64 = iota
	threadContext
	threadRaised
	threadHandled
)

// addRoots adds the roots. It fails if the offsets prove to be wrong.
func (w *walk) addRoots() error {
	what := ""
	switch {
	case w.hasNoModules() && w.hasThread() && w.findGenerations():
		return cmp.Or(w.err, fmt.Errorf("%w: it starts or ends", ErrNoPython))
	case !w.hasModules():
		what = "modules"
	case !w.hasThread():
		what = "threads"
	case !w.findGenerations():
		what = "lists of the garbage collector"
	default:
		w.from = noNode
		w.roots()
		return w.err
	}
	return cmp.Or(w.err, fmt.Errorf("the interpreter's %s are not where they should be: it is not a CPython that ttmem knows", what))
}

// hasNoModules reports whether there are no modules yet, or no longer any.
func (w *walk) hasNoModules() bool {
	modules := w.word(w.interpreter() + uint64(w.heap.Modules))
	if modules == 0 {
		return true
	}
	_, ok := w.keys(w.word(modules + 32))
	none := true
	w.eachModule(func(string, uint64, uint64) { none = false })
	return ok && none
}

// hasModules reports whether sys.modules is where it should be.
func (w *walk) hasModules() bool {
	t := w.typeOf(w.word(w.word(w.interpreter()+uint64(w.heap.Modules)) + 8))
	if t == nil || t.kind != dict {
		return false
	}
	found := map[string]bool{}
	w.eachModule(func(name string, _, _ uint64) { found[name] = true })
	return found["sys"] && found["builtins"]
}

// hasThread reports whether the newest thread is one of the interpreter.
func (w *walk) hasThread() bool {
	const interpreter = 16 // of a thread, the same from 3.10 to 3.14
	return w.word(w.word(w.interpreter()+uint64(w.heap.Threads))+interpreter) == w.interpreter()
}

// findGenerations reports whether the garbage collector's lists are where they should be, or 4 bytes before
// that, as in Debian's 3.13. The first element of a list leads back; others may be relinked at the moment.
func (w *walk) findGenerations() bool {
	for _, before := range [...]uint32{0, 4} {
		w.heap.Generations -= before
		for i := range uint64(generations) {
			head := w.generation(i)
			if first := w.word(head) &^ 3; first != 0 && w.word(first+8)&^3 == head {
				return true
			}
		}
	}
	return false
}

// generation returns the head of a list of the garbage collector.
func (w *walk) generation(i uint64) uint64 {
	const size = 24
	return w.interpreter() + uint64(w.heap.Generations) + i*size
}

const generations = 3

// interpreter returns the address of the main interpreter's state.
func (w *walk) interpreter() uint64 {
	return w.word(w.Bias + w.runtime.Runtime + uint64(w.heap.Interpreter))
}

// eachModule calls f with the modules, and the str of their names.
func (w *walk) eachModule(f func(name string, str, object uint64)) {
	k, ok := w.keys(w.word(w.word(w.interpreter()+uint64(w.heap.Modules)) + 32))
	if !ok {
		return
	}
	w.each(k, func(_, str, object uint64) {
		if name, ok := w.str(str); ok {
			f(name, str, object)
		}
	})
}

// roots emits the modules, the variables of running functions and what threads hold.
func (w *walk) roots() {
	w.eachModule(func(name string, str, object uint64) {
		w.cost = libraryCost
		switch {
		case name == "__main__":
			w.cost = mainCost
		case w.User(name, w.fileOf(object)):
			w.cost = userCost
		}
		w.emit(object, step{moduleStep, str}, 0)
	})
	w.cost = 0
	thread := w.word(w.interpreter() + uint64(w.heap.Threads))
	for range maxThreads {
		if thread == 0 || w.err != nil {
			return
		}
		w.thread(thread)
		thread = w.word(thread + uint64(w.heap.NextThread))
	}
	w.cut(tooMany{maxThreads, "threads"})
}

// fileOf returns the __file__ of a module.
func (w *walk) fileOf(object uint64) (file string) {
	k, ok := w.keys(w.word(w.word(object+16) + 32))
	if !ok {
		return ""
	}
	k.count = min(k.count, 16) // it is among the first
	w.each(k, func(_, name, value uint64) {
		if s, ok := w.str(name); ok && s == "__file__" {
			file, _ = w.str(value)
		}
	})
	return file
}

// thread emits what a thread holds.
func (w *walk) thread(at uint64) {
	o := &w.runtime.Offsets
	f := w.word(at + uint64(o.ThreadFrame))
	if o.CFrame {
		f = w.word(f + uint64(o.CFrameFrame))
	}
	var frames []uint64
	for ; f != 0 && len(frames) < maxFrames && w.err == nil; f = w.word(f + uint64(o.FramePrevious)) {
		frames = append(frames, f)
	}
	if len(frames) == maxFrames {
		w.cut(tooMany{maxFrames, "frames of one thread"})
	}
	for i := len(frames) - 1; i >= 0; i-- { // outermost first
		w.frame(frames[i], uint8(min(localsCost+innerCost*(len(frames)-1-i), libraryCost-1)))
	}
	for _, root := range []struct {
		ref uint64
		at  uint32
	}{{threadDict, w.heap.ThreadDict}, {threadContext, w.heap.ThreadContext}, {threadRaised, w.heap.Raised}} {
		w.emit(w.word(at+uint64(root.at)), step{threadStep, root.ref}, threadCost)
	}
	handled := w.word(at + uint64(w.heap.Handled))
	for range maxFrames {
		if handled == 0 {
			return
		}
		w.emit(w.word(handled+uint64(w.heap.HandledValue)), step{threadStep, threadHandled}, threadCost)
		handled = w.word(handled + uint64(w.heap.HandledValue) + 8)
	}
}

// collected emits the objects that the garbage collector knows.
func (w *walk) collected() {
	const link = 16
	for i := range uint64(generations) {
		head := w.generation(i)
		at := w.word(head) &^ 3
		for n := 0; at != head && at != 0 && n < w.limits.Objects && !w.isOver(1); n++ {
			object, after := at+link, uint8(0)
			if t := w.typeOf(w.word(object + 8)); t != nil && t.target {
				after = lastCost - collectedCost // what holds it comes first
			}
			w.emit(object, step{garbage, 0}, after)
			at = w.word(at) &^ 3
		}
	}
}
