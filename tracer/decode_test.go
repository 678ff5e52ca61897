package tracer

import (
	"context"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap/heaptest"
	"ttmem/tracer/internal/libraries"
)

// newTestDecoder returns a decoder with one library. It reads no process.
func newTestDecoder() *decoder {
	lib := &libraries.Library{Library: heaptest.Library()}
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

// markRecord is what the kernel side sends for a mark.
func markRecord(name string) []byte {
	r := bpf.KernelMarkRecord{H: bpf.KernelHeader{Kind: bpf.RecordMark}}
	n := copy(r.Name[:], name)
	return raw(&r)[:unsafe.Offsetof(r.Name)+uintptr(n)+1]
}

// TestNamesOfMarks: a name is shown as text, whatever the process calls one; a mark without a name is counted as
// lost.
func TestNamesOfMarks(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"step", "step"}, {"épo\xc3", "épo\ufffd"}, {"", ""},
	} {
		d := newTestDecoder()
		known := d.mark(d.process(7), event.Event{TimeNs: 5, PID: 7, TID: 7}, markRecord(test.name))
		qt.Check(t, qt.Equals(known, test.want != ""))
		var got string
		for _, e := range d.queue.Events {
			if e.Kind == event.Mark {
				got = e.Cause
			}
		}
		qt.Check(t, qt.Equals(got, test.want))
	}
	d := newTestDecoder()
	qt.Check(t, qt.IsFalse(d.mark(d.process(7), event.Event{TimeNs: 5, PID: 7, TID: 7}, markRecord("x")[:20])))
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
		for i := range d.queue.Events {
			text, err := event.MarshalJSON(d.queue.Events[i].Record())
			qt.Assert(t, qt.IsNil(err))
			fuzztest.Printable(t, string(text))
		}
	})
}
