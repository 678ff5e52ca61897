// Package lines finds where in the source the code of a file is from, with the calls
// that the compiler inlined, by debug/dwarf. It is for commands that show recordings:
// the tracer does not use it, as it is root and files are their users'.
package lines

import (
	"strings"

	"ttmem/symbolize"
)

// Names finds the functions and lines at addresses of one file, with the help of a debug
// file where one is installed. Only one goroutine may use it at a time.
type Names struct {
	files   []*symbolize.ELF // the file and, where there is one, its debug file
	symbols []*symbolize.Names
	dwarf   *reader // nil where none has DWARF
}

// New returns the names of a file, which it closes in the end. A debug file is searched
// beside the path where the file lies, and below root before the machine's own; both may
// be empty.
func New(e *symbolize.ELF, root, path string) *Names {
	n := &Names{}
	n.add(e)
	if !e.HasDebugInfo() {
		n.add(findDebugFile(e, root, path))
	}
	return n
}

// add adds a file, which may be nil.
func (n *Names) add(e *symbolize.ELF) {
	if e == nil {
		return
	}
	n.files, n.symbols = append(n.files, e), append(n.symbols, symbolize.NewNames(e))
	if e.HasDebugInfo() {
		n.dwarf = &reader{file: e.File()}
	}
}

// Find returns the names of the file at a path that has a build id, or of its debug file
// where it is no longer there; nil where there is no debug information.
func Find(path, buildID string) *Names {
	e := open("/", path, buildID)
	if e == nil {
		e = findByBuildID("/", buildID)
	}
	if e == nil {
		return nil
	}
	n := New(e, "", path)
	if n.dwarf == nil && len(n.files) == 1 {
		n.Close()
		return nil
	}
	return n
}

// Close closes the files. Afterwards there are no names.
func (n *Names) Close() {
	if n.dwarf != nil {
		n.dwarf.close()
	}
	for _, e := range n.files {
		e.Close()
	}
	n.files, n.symbols, n.dwarf = nil, nil, nil
}

// Err says why the file's debug information is not read, or not any more.
func (n *Names) Err() error {
	if n.dwarf == nil {
		return nil
	}
	return n.dwarf.err
}

// At are the functions at a virtual address of the file: the innermost one first, after
// those that were inlined into each other the one that they were inlined into. There are
// none where nothing is known of the address. Of a caller ask for the return address
// less one.
func (n *Names) At(vaddr uint64) []symbolize.Function {
	var known []symbolize.Function
	for _, symbols := range n.symbols {
		if known = symbols.At(vaddr); len(known) > 0 {
			break
		}
	}
	if n.dwarf == nil || len(known) > 0 && strings.HasSuffix(known[0].Symbol, "@plt") {
		return known
	}
	calls := n.dwarf.at(vaddr)
	if len(calls) == 0 {
		return known
	}
	// The linker's table knows the function itself best: which clone it is, and under
	// which of its names it is exported.
	if len(known) > 0 {
		last := &calls[len(calls)-1]
		last.Name, last.Symbol = known[0].Name, known[0].Symbol
	}
	return calls
}
