// Package lines finds the source lines of a file's code, including inlined calls, with
// debug/dwarf. It is for commands that show recordings. The tracer does not use it: it runs
// as root, and the files belong to users.
// It is not part of ttmem's Go library: it changes without notice.
package lines

import (
	"strings"

	"ttmem/symbolize"
)

// Names finds the functions and lines at addresses of one file, with its debug file if one
// is installed. It is not safe for concurrent use.
type Names struct {
	files []*symbolize.ELF // the file and its debug file, if any
	dwarf *reader          // nil if none has DWARF
}

// New returns the names of a file, and takes ownership of it. It searches for a debug file beside
// path, which may be empty, and in the machine's own folder.
func New(e *symbolize.ELF, path string, open Opener) *Names {
	n := &Names{}
	n.add(e)
	if !e.HasDebugInfo() {
		n.add(open.findDebugFile(e, path))
	}
	return n
}

// add adds a file, which may be nil.
func (n *Names) add(e *symbolize.ELF) {
	if e == nil {
		return
	}
	n.files = append(n.files, e)
	if e.HasDebugInfo() {
		n.dwarf = &reader{file: e.File()}
	}
}

// Find returns the names of the file at a path with a build ID, or of its debug file if the
// file is gone; nil if there is no debug information.
func Find(path, buildID string, open Opener) *Names {
	e := open.find(path, buildID)
	if e == nil {
		e = open.findByBuildID(buildID)
	}
	if e == nil {
		return nil
	}
	n := New(e, path, open)
	if n.dwarf == nil && len(n.files) == 1 {
		n.Close()
		return nil
	}
	return n
}

// Close closes the files. Afterwards At returns nothing.
func (n *Names) Close() {
	if n.dwarf != nil {
		n.dwarf.close()
	}
	for _, e := range n.files {
		e.Close()
	}
	n.files, n.dwarf = nil, nil
}

// Err returns why the file's debug information cannot be read, or no longer.
func (n *Names) Err() error {
	if n.dwarf == nil {
		return nil
	}
	return n.dwarf.err
}

// At returns the functions at a virtual address of the file: inlined ones from the
// innermost on, then the one that contains them. It returns none if the address is unknown.
// For a caller, pass the return address less one.
func (n *Names) At(vaddr uint64) []symbolize.Function {
	var known []symbolize.Function
	for _, e := range n.files {
		if f, ok := e.Function(vaddr); ok {
			known = []symbolize.Function{f}
			break
		}
	}
	if n.dwarf == nil || len(known) > 0 && strings.HasSuffix(known[0].Symbol, "@plt") {
		return known
	}
	// They are in every stack, and to read the DWARF of the C library would take longer than all else of a view.
	if len(known) > 0 && symbolize.StartFunctions[known[0].Name] {
		return known
	}
	calls := n.dwarf.at(vaddr)
	if len(calls) == 0 {
		return known
	}
	// The symbol table is the best source for the function itself: it has the clone and the
	// exported name.
	if len(known) > 0 {
		last := &calls[len(calls)-1]
		last.Name, last.Symbol = known[0].Name, known[0].Symbol
	}
	return calls
}
