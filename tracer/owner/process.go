package owner

import (
	"errors"
	"os"
	"strings"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/symbolize/x86"
	"ttmem/tracer/host"
)

// ErrNoPython means that a process has no Python interpreter whose heap can be read.
var ErrNoPython = errors.New("no Python whose heap can be read")

// ErrFreeThreaded is for an interpreter whose objects have other layouts, and whose collector has no lists of
// objects: it finds them in the heaps of its allocator.
var ErrFreeThreaded = errors.New("owners in a free-threaded Python are not searched")

// A process has the files that its Python and its ttnn consist of.
type process struct {
	memory *pages
	// heap is nil if there is no Python whose heap can be read: noHeap says why.
	heap    *Heap
	noHeap  error
	tensors *Tensors
}

// newProcess reads the files, which stay open as long as the process is used.
func newProcess(memory host.Memory, maps []mapped, files []*os.File) *process {
	p := &process{memory: newPages(memory), noHeap: ErrNoPython}
	p.tensors = &Tensors{p.memory, &x86.Machine{Read: p.memory.read}}
	elfs, looked := make([]*symbolize.ELF, len(files)), make([]bool, len(files))
	for i, file := range files {
		elfs[i], _ = symbolize.OpenFile(file)
	}
	for _, m := range maps {
		e := elfs[m.File]
		if e == nil {
			continue
		}
		bias, ok := e.Bias(m.Start, m.Offset)
		if !ok {
			continue
		}
		lookup := func(name string) (uint64, bool) {
			s, ok := e.Lookup(name)
			return s.Addr, ok
		}
		p.tensors.Machine.Modules = append(p.tensors.Machine.Modules, x86.Module{
			Start: m.Start, End: m.End, Bias: bias, PLT: e.PLTName, Function: lookup,
		})
		if looked[m.File] {
			continue
		}
		looked[m.File] = true
		runtime, err := python.Find(e)
		switch {
		case err == nil && runtime.FreeThreaded:
			p.noHeap = ErrFreeThreaded
		case err == nil && (p.heap == nil || !p.heap.isUsed()): // a library of Python may be mapped beside an interpreter
			p.heap = &Heap{memory: p.memory, Runtime: runtime, Bias: bias, Symbols: lookup, IsTarget: isHolder, User: isUsers}
		case err != nil && err != python.ErrNotPython:
			p.noHeap = err
		}
	}
	return p
}

// isUsed reports whether the interpreter has a state.
func (h *Heap) isUsed() bool {
	return h.memory.word(h.Bias+h.Runtime.Runtime+uint64(h.Runtime.Heap.Interpreter)) != 0
}

// isHolder reports whether instances of a type, which nanobind makes, may hold Buffers.
func isHolder(name, metaclass string) bool {
	return (isTensor(name) || isGlobal(name)) && isBound(metaclass)
}

// isBound reports whether a metaclass is that of the classes that nanobind makes.
func isBound(metaclass string) bool { return strings.Contains(metaclass, "nb_type") }

// isTensor reports whether a type is that of ttnn's tensors.
func isTensor(name string) bool { return name[strings.LastIndexByte(name, '.')+1:] == "Tensor" }

// isUsers reports whether a module belongs to the user's program: it is in no directory of
// libraries.
func isUsers(name, file string) bool {
	return file != "" && !strings.Contains(file, "/lib/python3") && !strings.Contains(file, "/site-packages/") &&
		!strings.Contains(file, "/dist-packages/") && !strings.HasPrefix(name, "ttnn")
}
