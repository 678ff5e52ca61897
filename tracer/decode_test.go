package tracer

import (
	"context"
	"testing"
	"unsafe"

	"ttmem/bpf"
	"ttmem/e2e/fuzztest"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
	"ttmem/tracer/libraries"
)

// newTestDecoder returns a decoder with one library, whose Buffer has consecutive fields. It reads no
// process.
func newTestDecoder() *decoder {
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
	lib := &libraries.Library{Library: known}
	ended, end := context.WithCancel(context.Background())
	end()
	lib.AttachedNs.Store(1)
	set := libraries.New(nil, nil, new(host.Proc), func(int, string) {})
	set.Put(0, lib)
	return newDecoder(ended, new(testKernel), set, nil, new(host.Readers), &Options{Warn: func(int, string) {}})
}

func raw[T any](t *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t))
}

// FuzzDecode checks that any record becomes an event or is counted as lost.
func FuzzDecode(f *testing.F) {
	for kind := range bpf.RecordCaught + 2 {
		r := bpf.KernelDeviceRecord{}
		r.H = bpf.KernelHeader{Tgid: 1, Tid: 1, Kind: kind, Count: 1 << 31, Flags: 0xff, StaticKind: 0xff}
		f.Add(append(raw(&r), make([]byte, 2048)...))
		f.Add(raw(&r)[:20])
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		d := newTestDecoder()
		aligned := make([]uint64, len(record)/8+1)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(record))
		copy(b, record)
		fuzztest.Bounded(t, len(b), 100, func() {
			d.decode(b)
			d.decode(b)
		})
		for i := range d.queue.events {
			fuzztest.Printable(t, string(d.queue.events[i].AppendJSON(nil)))
		}
	})
}
