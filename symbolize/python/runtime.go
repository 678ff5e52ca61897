// Package python finds where an interpreter keeps its frames, and decodes copies of its code
// objects, so that Python stacks can be read from outside. It supports CPython 3.10 to 3.14, since
// 3.13 also free-threaded, on x86-64 and glibc. It uses only the files: nothing runs in the target.
// It is not part of ttmem's Go library: it changes without notice.
package python

import (
	"errors"
	"fmt"

	"ttmem/symbolize"
	"ttmem/symbolize/unwind"
)

// ErrNotPython means that a file contains no Python interpreter.
var ErrNotPython = errors.New("no Python interpreter")

// Runtime has the facts about an interpreter's file that the kernel side needs. All addresses are
// virtual addresses of the file.
type Runtime struct {
	// Minor is the x of CPython 3.x.
	Minor int
	// FreeThreaded is set for a build without a GIL.
	FreeThreaded bool
	// Runtime is the address of _PyRuntime.
	Runtime uint64
	// Key is the offset in _PyRuntime of autoTSSkey, the Py_tss_t of the thread state: an
	// i32 that is 1 once the i32 after it is a pthread key.
	Key uint64
	// Eval is the code of _PyEval_EvalFrameDefault: the function itself, then the parts
	// that the compiler split off and that share its stack frame.
	Eval []Range
	// CodeType is the address of PyCode_Type, and CodeDealloc the function that the interpreter
	// calls before it frees a code object.
	CodeType, CodeDealloc uint64
	Offsets               Offsets
	// Heap is for a build with a GIL.
	Heap Heap
}

// Range is the addresses from Start up to, but not including, End.
type Range struct{ Start, End uint64 }

// Contains reports whether an address lies in the range.
func (r Range) Contains(addr uint64) bool { return addr >= r.Start && addr < r.End }

// IsPython reports whether a file may have a Python interpreter. Extension modules use _PyRuntime, so
// interpreters must export it.
func IsPython(e *symbolize.ELF) bool { return e.Exports("_PyRuntime") }

// Find finds the Python interpreter in a file: an executable or a library, stripped or not.
// It returns ErrNotPython, after a few reads, if there is none, and another error for an
// unsupported one.
func Find(e *symbolize.ELF) (*Runtime, error) {
	if !IsPython(e) {
		return nil, ErrNotPython
	}
	object, ok := e.Lookup("_PyRuntime")
	if !ok {
		return nil, ErrNotPython
	}
	// A program that embeds Python may have a copy of the library's data.
	if _, ok := e.Lookup(evalName); !ok {
		return nil, ErrNotPython
	}
	v, err := findVersion(e)
	if err != nil {
		return nil, err
	}
	l, ok := layouts[v.minor]
	if !ok || v.early {
		return nil, fmt.Errorf("CPython %s: only 3.10 to 3.14 are supported", v.text)
	}
	// Both kinds of debug builds have more fields at the start of every object. The first
	// name is in 3.10 and 3.11, the second in all.
	for _, name := range []string{"_Py_RefTotal", "_Py_NegativeRefcount"} {
		if _, ok := e.Lookup(name); ok {
			return nil, fmt.Errorf("CPython %s: a debug build: not supported", v.text)
		}
	}
	r := &Runtime{Minor: v.minor, Runtime: object.Addr, Offsets: l.Offsets, Heap: HeapOf(v.minor)}
	if err := r.fill(e, object, l.key); err != nil {
		return nil, fmt.Errorf("CPython %s: %w", v.text, err)
	}
	return r, nil
}

// fill derives the values that differ from build to build.
func (r *Runtime) fill(e *symbolize.ELF, object symbolize.Symbol, key uint64) (err error) {
	if r.Minor >= 13 {
		b, err := e.Bytes(object.Addr, debugLayouts[r.Minor].size)
		if err != nil {
			return fmt.Errorf("reading the debug offsets: %w", err)
		}
		if err := r.merge(b); err != nil {
			return err
		}
	}
	if r.Key, err = findKey(e, object, key, r.Minor >= 13); err != nil {
		return err
	}
	functions := unwind.ReadFunctions(e)
	if r.Eval, err = findEval(e, functions); err != nil {
		return err
	}
	kind, ok := e.Lookup("PyCode_Type")
	if !ok {
		return errors.New("no symbol PyCode_Type")
	}
	r.CodeType = kind.Addr
	r.CodeDealloc, err = findDealloc(e, functions, r.CodeType+uint64(r.Offsets.Head))
	return err
}

// findDealloc returns the tp_dealloc of PyCode_Type, whose fields lie from codeType on as in a build with a GIL.
func findDealloc(e *symbolize.ELF, functions unwind.Functions, codeType uint64) (uint64, error) {
	const deallocSlot = 48 // tp_dealloc, after the name and two sizes
	addr, err := e.Pointer(codeType + deallocSlot)
	if err != nil {
		return 0, fmt.Errorf("reading tp_dealloc of PyCode_Type: %w", err)
	}
	if !e.InCode(addr) {
		return 0, fmt.Errorf("tp_dealloc of PyCode_Type, %#x, is not code", addr)
	}
	// A probe in the middle of an instruction would crash the target.
	start, _, unwinds := functions.At(addr)
	_, offset, named := e.At(addr)
	if unwinds && start != addr || named && offset != 0 || !unwinds && !named {
		return 0, fmt.Errorf("tp_dealloc of PyCode_Type, %#x, is not the start of a function", addr)
	}
	return addr, nil
}
