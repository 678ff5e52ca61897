package bpf

import "unsafe"

// As views a record as the type that it has; nil where it is too short. A record is
// aligned as the kernel side's are.
func As[T any](raw []byte) *T {
	var t T
	if len(raw) < int(unsafe.Sizeof(t)) {
		return nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(raw)))
}

// Values are n values that raw begins with, as at the end of a record; false where it has
// fewer, or n is more than there can be.
func Values[T any](raw []byte, n, most int) ([]T, bool) {
	var one T
	if n > most || len(raw) < n*int(unsafe.Sizeof(one)) {
		return nil, false
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), n), true
}
