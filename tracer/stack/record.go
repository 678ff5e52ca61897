package stack

import (
	"bytes"
	"unsafe"

	"ttmem/bpf"
	"ttmem/symbolize/python"
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

// AddCodeRecord adds the code object of a record, or another part of its line table.
func (s *Process) AddCodeRecord(raw []byte) bool {
	r := bpf.Begun[bpf.KernelCodeRecord](raw, unsafe.Offsetof(bpf.KernelCodeRecord{}.Data))
	if r == nil {
		return false
	}
	data := raw[unsafe.Offsetof(r.Data):]
	text := func(t bpf.KernelText) string {
		n := min(int(t.Bytes), len(data))
		text := python.DecodeString(t.State, data[:n])
		data = data[n:]
		return text
	}
	code := python.Code{
		Minor: int(r.Minor), FirstLine: int(int32(r.FirstLine)),
		Name: text(r.Name), QualName: text(r.Qualname), File: text(r.File), LineTable: bytes.Clone(data),
	}
	s.addCode(r.Id, int(r.H.Count), &code)
	return true
}
