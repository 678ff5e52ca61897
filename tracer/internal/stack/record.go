package stack

import (
	"bytes"
	"unsafe"

	"ttmem/bpf"
	"ttmem/symbolize/python"
)

// AddNativeRecord adds the stack of a native record; of has the states of the process's
// code. It returns false for a malformed record.
func (s *Process) AddNativeRecord(raw []byte, pid int, of *Spaces) bool {
	const fixed = unsafe.Offsetof(bpf.KernelNativeRecord{}.Addresses)
	r := bpf.Begun[bpf.KernelNativeRecord](raw, fixed)
	if r == nil {
		return false
	}
	addresses, ok := bpf.Values[uint64](raw[fixed:], int(r.Frames), len(r.Addresses))
	if ok {
		s.addNative(r.Id, r.Generation, addresses, of.view(pid, r.Generation))
	}
	return ok
}

// AddPythonRecord adds the stack of a Python record.
func (s *Process) AddPythonRecord(raw []byte) bool {
	const fixed = unsafe.Offsetof(bpf.KernelPythonRecord{}.Calls)
	r := bpf.Begun[bpf.KernelPythonRecord](raw, fixed)
	if r == nil {
		return false
	}
	calls, ok := bpf.Values[bpf.KernelPythonCall](raw[fixed:], int(r.Frames), len(r.Calls))
	if ok {
		s.addPython(r.Id, calls)
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
