package owner

import (
	"errors"
	"os"
	"path"
	"strings"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/heap/accessor"
	"ttmem/tracer/host"
)

// ErrNoPython means that a process has no Python interpreter whose heap can be read.
var ErrNoPython = errors.New("no Python whose heap can be read")

// maxFiles bounds the mapped files that are looked at.
const maxFiles = 64

// A process has the files that its Python and its ttnn consist of.
type process struct {
	memory *pages
	// heap is nil if there is no Python whose heap can be read: noHeap says why.
	heap    *Heap
	noHeap  error
	tensors *Tensors
}

// isLibrary and isPython report whether a mapped file may have functions of the library, or the
// interpreter.
func isLibrary(m *host.Mapping) bool {
	base := path.Base(m.Path)
	return strings.HasPrefix(base, "libtt_metal") || strings.Contains(base, "ttnncpp")
}

func isPython(m *host.Mapping) bool { return strings.Contains(path.Base(m.Path), "python") }

// openMapped opens the files of a process that may have its interpreter or functions of the library.
func openMapped(proc *host.Proc, pid int) (maps []host.Mapping, files []*os.File, err error) {
	all, err := proc.CodeMappings(pid)
	for _, m := range all {
		if len(files) == maxFiles || !isLibrary(&m) && !isPython(&m) {
			continue
		}
		if file, err := proc.OpenMapped(pid, m.Start, m.End); err == nil {
			maps, files = append(maps, m), append(files, file)
		}
	}
	return maps, files, err
}

// open reads the files, which stay open as long as the process is used.
func open(memory Memory, maps []host.Mapping, files []*os.File) *process {
	p := &process{memory: newPages(memory), noHeap: ErrNoPython}
	p.tensors = &Tensors{Machine: &accessor.Machine{Read: p.memory.read}}
	for i, m := range maps {
		e, err := symbolize.OpenFile(files[i])
		if err != nil {
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
		if isLibrary(&m) {
			p.tensors.Machine.Modules = append(p.tensors.Machine.Modules, accessor.Module{
				Start: m.Start, End: m.End, Bias: bias, PLT: e.PLTName, Function: lookup,
			})
			continue
		}
		runtime, err := python.Find(e)
		switch {
		case err == nil && p.heap == nil:
			p.heap = &Heap{memory: p.memory, Runtime: runtime, Bias: bias, Symbols: lookup, IsTarget: isHolder, User: isUsers}
		case err != nil && err != python.ErrNotPython:
			p.noHeap = err
		}
	}
	return p
}

// isHolder reports whether instances of a type, which nanobind makes, may hold Buffers.
func isHolder(name, metaclass string) bool {
	return (isTensor(name) || isGlobal(name)) && strings.Contains(metaclass, "nb_type")
}

// isTensor reports whether a type is that of ttnn's tensors.
func isTensor(name string) bool { return name[strings.LastIndexByte(name, '.')+1:] == "Tensor" }

// isUsers reports whether a module belongs to the user's program: it is in no directory of
// libraries.
func isUsers(name, file string) bool {
	return file != "" && !strings.Contains(file, "/lib/python3") && !strings.Contains(file, "/site-packages/") &&
		!strings.Contains(file, "/dist-packages/") && !strings.HasPrefix(name, "ttnn")
}
