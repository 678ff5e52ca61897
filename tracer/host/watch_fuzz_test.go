package host

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// FuzzDrain: the names in the records of a ring are those of tenants' files, and the records
// wrap at its end.
func FuzzDrain(f *testing.F) {
	record := func(kind uint32, body []byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, kind)
		b = append(b, 0, 0)
		b = binary.NativeEndian.AppendUint16(b, uint16(8+len(body)))
		return append(b, body...)
	}
	seen := record(unix.PERF_RECORD_MMAP2, append(make([]byte, 64), "/lib/x.so\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...))
	f.Add(append(seen, record(unix.PERF_RECORD_LOST, make([]byte, 24))...), uint64(0))
	f.Add(append(seen, seen...), uint64(perfRingPages*4096-20))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 7, 0}, uint64(1<<64-4))
	f.Fuzz(func(t *testing.T, records []byte, at uint64) {
		r := perfRing{meta: &unix.PerfEventMmapPage{}, data: make([]byte, perfRingPages*os.Getpagesize())}
		size := uint64(len(r.data))
		records = records[:min(len(records), len(r.data))]
		at = min(at, 1<<62)
		for i, b := range records {
			r.data[(at+uint64(i))%size] = b
		}
		r.meta.Data_tail, r.meta.Data_head = at, at+uint64(len(records))
		list := r.drain(nil, func() {})
		qt.Check(t, qt.Equals(r.meta.Data_tail, r.meta.Data_head))
		qt.Check(t, qt.IsTrue(len(list) <= len(records)/80))
		for _, m := range list {
			qt.Check(t, qt.IsTrue(len(m.Path) <= len(records)))
		}
	})
}
