package stack

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/symbolize/python"
)

// TestOneStackForAllWaysThroughTheInterpreter: stacks that differ only in the interpreter's
// own calls are one; the calls of other code, and where Python's stand, tell stacks apart.
func TestOneStackForAllWaysThroughTheInterpreter(t *testing.T) {
	interpreter := &codeFile{path: "python", python: &python.Runtime{Eval: []python.Range{{Start: 100, End: 200}}}}
	library := &codeFile{path: "library"}
	view := &spaceView{1, []codeMapping{{start: 0, end: 1000, file: interpreter}, {start: 1000, end: 2000, file: library}}}
	var lastID uint64
	s := NewProcess(Options{}, &lastID)
	stacks := [][]uint64{
		{1010, 300, 110, 400}, // the library, called by the interpreter's loop
		{1010, 310, 310, 120, 400},
		{1020, 300, 110, 400},
		{300, 110, 1010, 400},
		{1010, 110, 120, 400},
	}
	for i, addresses := range stacks {
		s.addNative(uint64(i+1), 1, addresses, view)
	}
	s.addPython(1, []bpf.KernelPythonCall{{Code: 1, Place: 4}})
	s.addPython(2, []bpf.KernelPythonCall{{Code: 1, Place: 6}})
	id := func(native, python uint64) uint64 {
		return s.Stack(bpf.KernelStackIds{Native: native, Python: python}).ID
	}
	first := id(1, 1)
	qt.Check(t, qt.Equals(id(2, 1), first))
	for native := uint64(3); native <= uint64(len(stacks)); native++ {
		qt.Check(t, qt.Not(qt.Equals(id(native, 1), first)), qt.Commentf("stack %d", native))
	}
	qt.Check(t, qt.Not(qt.Equals(id(1, 2), first)))
	qt.Check(t, qt.Not(qt.Equals(id(1, 0), first)))
	// what is not known yet is equal to nothing
	qt.Check(t, qt.Not(qt.Equals(id(1, 9), id(1, 0))))
	qt.Check(t, qt.Not(qt.Equals(id(1, 8), id(1, 9))))
}
