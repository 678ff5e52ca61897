package tracer

import (
	"unsafe"

	"ttmem/bpf"
)

// The records of stacks end where what they have ends.

func (d *decoder) nativeStack(pid int, raw []byte) bool {
	const head = int(unsafe.Offsetof(bpf.KernelNativeRecord{}.Addresses))
	if len(raw) < head {
		return false
	}
	var r bpf.KernelNativeRecord
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), raw)
	if int(r.Frames) > len(r.Addresses) || len(raw) < head+8*int(r.Frames) {
		return false
	}
	d.process(pid).stacks.addNative(&r, r.Addresses[:r.Frames], d.view(pid, r.Generation))
	return true
}

func (d *decoder) pythonStack(pid int, raw []byte) bool {
	const head = int(unsafe.Offsetof(bpf.KernelPythonRecord{}.Calls))
	if len(raw) < head {
		return false
	}
	var r bpf.KernelPythonRecord
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), raw)
	if int(r.Frames) > len(r.Calls) || len(raw) < head+8*int(r.Frames) {
		return false
	}
	d.process(pid).stacks.addPython(r.Id, r.Calls[:r.Frames])
	return true
}

func (d *decoder) code(pid int, raw []byte) bool {
	r := as[bpf.KernelCodeRecord](raw)
	if r == nil {
		return false
	}
	table := raw[unsafe.Sizeof(*r):]
	d.process(pid).stacks.addCode(r, table[:min(len(table), int(r.TableBytes))])
	return true
}
