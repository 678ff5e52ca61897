package stack

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/symbolize/python"
	"ttmem/tracer/event"
)

// TestOneStackForAllWaysThroughTheInterpreter: stacks that differ only in the interpreter's
// own calls are one; the calls of other code, and where Python's stand, tell stacks apart.
func TestOneStackForAllWaysThroughTheInterpreter(t *testing.T) {
	interpreter := &codeFile{path: "python", python: &python.Runtime{Eval: []python.Range{{Start: 100, End: 200}}}}
	library := &codeFile{path: "library"}
	view := &spaceView{1, []codeMapping{{start: 0, end: 1000, file: interpreter}, {start: 1000, end: 2000, file: library}}}
	s := NewProcess(Options{}, new(Shared))
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

// A process with many stacks begins anew: a stack that is in use stays the same one, also in
// the new state, events that are under way find theirs, and the others are dropped.
func TestManyStacksBeginAnew(t *testing.T) {
	library := &codeFile{path: "library"}
	view := &spaceView{1, []codeMapping{{start: 1000, end: 2000, file: library}}}
	s := NewProcess(Options{}, new(Shared))
	ids := func(native uint64) bpf.KernelStackIds { return bpf.KernelStackIds{Native: native} }
	s.addNative(1, 1, []uint64{1010, 1020}, view)
	s.addNative(2, 1, []uint64{1030}, view)
	used := s.Stack(ids(1))
	before := s.StackBytes()
	qt.Check(t, qt.Equals(s.Renew(), before))
	qt.Check(t, qt.Equals(s.Stack(ids(1)), used)) // of an event under way
	s.addNative(11, 2, []uint64{1010, 1020}, view)
	qt.Check(t, qt.Equals(s.Stack(ids(11)), used))
	s.addNative(11, 2, []uint64{1010, 1020}, view) // sent again
	qt.Check(t, qt.HasLen(s.newest.native, 1))
	again := s.newest.bytes
	qt.Check(t, qt.Equals(s.Renew(), before+again))
	qt.Check(t, qt.Equals(s.StackBytes(), again))
	s.Renew()
	qt.Check(t, qt.Equals(s.StackBytes(), 0))
	s.addNative(21, 3, []uint64{1010, 1020}, view)
	qt.Check(t, qt.Equals(s.Stack(ids(21)), used))
	qt.Check(t, qt.IsNil(s.parts(ids(2)).native))
	qt.Check(t, qt.HasLen(used.Calls(), 2))
}

// Half of the code objects is forgotten. The newest have names, and so has what all stacks go through.
func TestManyCodeObjects(t *testing.T) {
	s := NewProcess(Options{}, new(Shared))
	const many = 100
	for id := range uint32(many) {
		s.addCode(id+1, 0, &python.Code{Minor: 10, Name: "f", LineTable: make([]byte, 1<<16)})
	}
	const outermost = 1
	for id := range uint32(many) {
		s.addPython(uint64(id+1), []bpf.KernelPythonCall{{Code: id + 1}, {Code: outermost}})
	}
	before := s.CodeBytes()
	qt.Check(t, qt.Equals(s.ForgetCode(), before/2))
	qt.Check(t, qt.IsNotNil(s.codes[outermost]))
	qt.Check(t, qt.HasLen(s.codes, many/2))
	name := func(code uint32) string { return s.pythonCall(bpf.KernelPythonCall{Code: code}).shown.Frames[0].Name }
	qt.Check(t, qt.Equals(name(many), "f"))
	// all that runs is sent again
	bytes := s.CodeBytes()
	s.addCode(many, 0, &python.Code{Minor: 10, Name: "f", LineTable: make([]byte, 1<<12)})
	s.addCode(many, 1<<12, &python.Code{Minor: 10, LineTable: make([]byte, 1<<12)})
	qt.Check(t, qt.Equals(s.CodeBytes(), bytes))
	const dropped = 2
	qt.Check(t, qt.Equals(name(dropped), ""))
	s.addCode(dropped, 0, &python.Code{Minor: 10, Name: "g", LineTable: make([]byte, 1<<16)})
	qt.Check(t, qt.Equals(name(dropped), "g"))
}

// Processes that run the same program share its calls, as long as one of them is in use.
func TestProcessesShareCalls(t *testing.T) {
	library := &codeFile{path: "library"}
	view := &spaceView{1, []codeMapping{{start: 1000, end: 4000, file: library}}}
	var shared Shared
	stackOf := func(address uint64) *event.Stack {
		s := NewProcess(Options{}, &shared)
		s.addNative(1, 1, []uint64{address}, view)
		s.codes[1] = &python.Code{Name: "forward", File: "model.py"}
		s.addPython(1, []bpf.KernelPythonCall{{Code: 1}})
		return s.Stack(bpf.KernelStackIds{Native: 1, Python: 1})
	}
	a, b, other := stackOf(1010).Calls(), stackOf(1010).Calls(), stackOf(1020).Calls()
	qt.Assert(t, qt.HasLen(a, 2))
	for i := range a {
		qt.Check(t, qt.Equals(b[i], a[i]))
	}
	qt.Check(t, qt.Not(qt.Equals(other[0], a[0])))
	for i := range uint64(2 * minSweep) {
		stackOf(2000 + i%1900).Calls()
		if i%500 == 0 {
			runtime.GC()
		}
	}
	qt.Check(t, qt.IsTrue(len(shared.calls) <= minSweep), qt.Commentf("%d calls", len(shared.calls)))
	qt.Check(t, qt.Equals(stackOf(1010).Calls()[0], a[0]))
}

// A code object whose line table comes in parts has all of it; a part that does not follow is ignored.
func TestCodeInParts(t *testing.T) {
	s := NewProcess(Options{}, new(Shared))
	add := func(tableAt int, name, table string) {
		r := bpf.KernelCodeRecord{Id: 1, Name: bpf.KernelText{State: 1<<2 | 32 | 64, Bytes: uint32(len(name))}}
		r.H.Count = uint32(tableAt)
		n := copy(r.Data[:], name+table)
		size := unsafe.Offsetof(r.Data) + uintptr(n)
		qt.Check(t, qt.IsTrue(s.AddCodeRecord(unsafe.Slice((*byte)(unsafe.Pointer(&r)), size))))
	}
	add(0, "forward", "abc")
	add(2, "", "x")
	add(3, "", "de")
	qt.Check(t, qt.Equals(s.codes[1].Name, "forward"))
	qt.Check(t, qt.Equals(string(s.codes[1].LineTable), "abcde"))
	qt.Check(t, qt.Equals(s.CodeBytes(), codeSize(s.codes[1])))
}
