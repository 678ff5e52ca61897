package tracer

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

func (d *decoder) nativeStack(pid int, raw []byte) bool {
	h := as[nativeHead](raw)
	if h == nil {
		return false
	}
	addresses, ok := listed[uint64](raw[unsafe.Sizeof(*h):], int(h.Frames), len(bpf.KernelNativeRecord{}.Addresses))
	if ok {
		d.process(pid).stacks.addNative(h.ID, h.Generation, addresses, d.view(pid, h.Generation))
	}
	return ok
}

func (d *decoder) pythonStack(pid int, raw []byte) bool {
	h := as[pythonHead](raw)
	if h == nil {
		return false
	}
	calls, ok := listed[bpf.KernelPythonCall](raw[unsafe.Sizeof(*h):], int(h.Frames), len(bpf.KernelPythonRecord{}.Calls))
	if ok {
		d.process(pid).stacks.addPython(h.ID, calls)
	}
	return ok
}

// listed are n values of which raw, which is aligned, has at least that many; false
// where it has not, or there cannot be as many.
func listed[T any](raw []byte, n, most int) ([]T, bool) {
	var one T
	if n > most || len(raw) < n*int(unsafe.Sizeof(one)) {
		return nil, false
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), n), true
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
