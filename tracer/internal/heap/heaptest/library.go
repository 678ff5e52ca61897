// Package heaptest has a library for tests that decode records.
package heaptest

import (
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/layout"
)

// Library returns a library whose Buffer has consecutive fields.
func Library() *heap.Library {
	fields := make(map[string]layout.Chain)
	for name, offset := range map[string]int32{
		"device_": 0, "size_": 8, "buffer_type_": 16, "buffer_layout_": 20, "owns_data_": 24, "address_": 32,
		"page_size_": 40, "allocator_": 48, "allocation_status_": 56, "hooked_allocation_": 57, "unique_id_": 64,
	} {
		fields[name] = layout.Chain{offset}
	}
	known, err := heap.NewLibrary(&layout.Layout{Fields: fields}, "libtt_metal.so", "1.2.3")
	if err != nil {
		panic(err)
	}
	return known
}
