package heap

import (
	"os"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// madeUpFields are the offsets in a synthetic program, in words.
var madeUpFields = map[string]layout.Chain{
	"ProgramImpl.id":                                       {0},
	"ProgramImpl.circular_buffers_":                        {8},
	"ProgramImpl.local_circular_buffer_allocation_needed_": {24},
	"ProgramImpl.kernel_text_size":                         {32, 4},
	"ProgramImpl.binary_data(begin)":                       {48},
	"CircularBuffer.core_ranges":                           {0},
	"CircularBuffer.size":                                  {16},
	"CircularBuffer.local_address":                         {24},
	"CircularBuffer.has_local_address":                     {28},
	"CircularBuffer.global_address":                        {32},
	"CircularBuffer.is_global":                             {36},
}

// An invalid program is an error, and has no other effect.
func TestReadInvalidProgram(t *testing.T) {
	readers := host.NewReaders()
	t.Cleanup(readers.Close)
	self := readers.Of(os.Getpid())
	at := func(words []uint64) uint64 { return uint64(uintptr(unsafe.Pointer(&words[0]))) }
	for _, c := range []struct {
		name   string
		damage func(impl, cb, ranges []uint64)
		want   string
	}{
		{"valid", func(_, _, _ []uint64) {}, ""},
		{"buffers not placed yet", func(impl, cb, _ []uint64) { impl[3], cb[0] = 1, 1 }, ""},
		{"a vector ends before it begins", func(impl, _, _ []uint64) { impl[2] = impl[1] - 16 }, ".*not a valid object.*"},
		{"half an element", func(impl, _, _ []uint64) { impl[2] = impl[1] + 8 }, ".*not a valid object.*"},
		{"very many buffers", func(impl, _, _ []uint64) { impl[2] = impl[1] + 1<<30 }, ".*not a valid object.*"},
		{"a flag of 0x70", func(impl, _, _ []uint64) { impl[3] = 0x70 }, ".*not a valid object.*"},
		{"no vector there", func(impl, _, _ []uint64) { impl[1], impl[2] = 16, 32 }, ".*reading 16 bytes at 0x10: not readable"},
		{"no buffer there", func(_, cb, _ []uint64) { cb[0], cb[1] = 64, 96 }, ".*reading 32 bytes at 0x40: not readable"},
		{"a range that ends before it begins", func(_, _, ranges []uint64) { ranges[0] = 9 }, ".*not a valid object.*"},
		{"a range of very many cores", func(_, _, ranges []uint64) { ranges[2] = 1 << 40 }, ".*not a valid object.*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranges := []uint64{0, 1, 7, 8}
			cb := []uint64{0, 0, 4096, 1<<32 | 0x19d60, 0}
			shared, configs := make([]uint64, 2), []uint64{80 << 32}
			impl := make([]uint64, 8)
			var pin runtime.Pinner
			defer pin.Unpin()
			for _, words := range [][]uint64{ranges, cb, shared, configs, impl} {
				pin.Pin(&words[0])
			}
			cb[0], cb[1] = at(ranges), at(ranges)+32
			shared[0] = at(cb)
			copy(impl, []uint64{77, at(shared), at(shared) + 16, 0, at(configs), at(configs) + 8, 1000, 1400})
			c.damage(impl, cb, ranges)
			l := &Library{Layout: &layout.Layout{Fields: madeUpFields}}
			p, err := l.ReadProgram(t.Context(), self, at(impl))
			runtime.KeepAlive(shared)
			if c.want != "" {
				qt.Assert(t, qt.ErrorMatches(err, `program at 0x[0-9a-f]+ of process \d+: `+c.want))
				return
			}
			qt.Assert(t, qt.IsNil(err))
			want := Program{ID: 77, BinaryBytes: 400, TextBytes: 80}
			if impl[3] == 0 {
				want.Statics = []Static{{0x19d60, 4096, []event.CoreRange{{X0: 0, Y0: 1, X1: 7, Y1: 8}}, event.CircularBuffer, false}}
			}
			qt.Check(t, qt.IsTrue(reflect.DeepEqual(p, want)), qt.Commentf("%+v", p))
		})
	}
	_, err := (&Library{Layout: &layout.Layout{}}).ReadProgram(t.Context(), self, 1<<12)
	qt.Check(t, qt.ErrorMatches(err, ".*ProgramImpl.id is not known"))
}
