package bpf

import "unsafe"

// As views a record as a value of its type; nil if it is too short. Records are aligned as
// in the kernel.
func As[T any](raw []byte) *T {
	var t T
	if len(raw) < int(unsafe.Sizeof(t)) {
		return nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(raw)))
}

// Values returns the n values at the start of raw, which is the end of a record; false if
// it is too short, or n exceeds most.
func Values[T any](raw []byte, n, most int) ([]T, bool) {
	var one T
	if n > most || len(raw) < n*int(unsafe.Sizeof(one)) {
		return nil, false
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), n), true
}
