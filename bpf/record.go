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

// Begun returns a record whose last field, at the offset fixed, is sent only as far as it is used; nil
// if it is shorter than that.
func Begun[T any](raw []byte, fixed uintptr) *T {
	if len(raw) < int(fixed) {
		return nil
	}
	r := new(T)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r)), raw)
	return r
}
