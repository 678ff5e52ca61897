package stack

import (
	"unsafe"

	"ttmem/bpf"
)

// The records of stacks end where what they have ends. nativeHead and pythonHead are
// what comes before that.
type (
	nativeHead struct {
		bpf.KernelHeader
		ID         uint64
		Generation uint32
		Frames     uint16
		End        uint16
	}
	pythonHead struct {
		bpf.KernelHeader
		ID     uint64
		Frames uint32
		_      uint32
	}
)

// of two equal numbers each can be taken from the other
const (
	_ = unsafe.Sizeof(nativeHead{}) - unsafe.Offsetof(bpf.KernelNativeRecord{}.Addresses)
	_ = unsafe.Offsetof(bpf.KernelNativeRecord{}.Addresses) - unsafe.Sizeof(nativeHead{})
	_ = unsafe.Sizeof(pythonHead{}) - unsafe.Offsetof(bpf.KernelPythonRecord{}.Calls)
	_ = unsafe.Offsetof(bpf.KernelPythonRecord{}.Calls) - unsafe.Sizeof(pythonHead{})
)

// AddNativeRecord takes the record of a native stack; of has the states of
// the process's code. It reports whether the record makes sense.
func (s *Process) AddNativeRecord(raw []byte, pid int, of *Spaces) bool {
	h := bpf.As[nativeHead](raw)
	if h == nil {
		return false
	}
	addresses, ok := bpf.Values[uint64](raw[unsafe.Sizeof(*h):], int(h.Frames), len(bpf.KernelNativeRecord{}.Addresses))
	if ok {
		s.addNative(h.ID, h.Generation, addresses, of.view(pid, h.Generation))
	}
	return ok
}

// AddPythonRecord takes the record of a Python stack.
func (s *Process) AddPythonRecord(raw []byte) bool {
	h := bpf.As[pythonHead](raw)
	if h == nil {
		return false
	}
	calls, ok := bpf.Values[bpf.KernelPythonCall](raw[unsafe.Sizeof(*h):], int(h.Frames), len(bpf.KernelPythonRecord{}.Calls))
	if ok {
		s.addPython(h.ID, calls)
	}
	return ok
}

// AddCodeRecord takes the record of a code object of Python.
func (s *Process) AddCodeRecord(raw []byte) bool {
	r := bpf.As[bpf.KernelCodeRecord](raw)
	if r == nil {
		return false
	}
	table := raw[unsafe.Sizeof(*r):]
	s.addCode(r, table[:min(len(table), int(r.TableBytes))])
	return true
}
