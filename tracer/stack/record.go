package stack

import (
	"unsafe"

	"ttmem/bpf"
)

// The records of stacks have variable length. nativeHead and pythonHead are the fixed
// parts.
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

// each pair of constants overflows unless the two numbers are equal
const (
	_ = unsafe.Sizeof(nativeHead{}) - unsafe.Offsetof(bpf.KernelNativeRecord{}.Addresses)
	_ = unsafe.Offsetof(bpf.KernelNativeRecord{}.Addresses) - unsafe.Sizeof(nativeHead{})
	_ = unsafe.Sizeof(pythonHead{}) - unsafe.Offsetof(bpf.KernelPythonRecord{}.Calls)
	_ = unsafe.Offsetof(bpf.KernelPythonRecord{}.Calls) - unsafe.Sizeof(pythonHead{})
)

// AddNativeRecord adds the stack of a native record; of has the states of the process's
// code. It returns false for a malformed record.
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

// AddPythonRecord adds the stack of a Python record.
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

// AddCodeRecord adds the code object of a record.
func (s *Process) AddCodeRecord(raw []byte) bool {
	r := bpf.As[bpf.KernelCodeRecord](raw)
	if r == nil {
		return false
	}
	table := raw[unsafe.Sizeof(*r):]
	s.addCode(r, table[:min(len(table), int(r.TableBytes))])
	return true
}
