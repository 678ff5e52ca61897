package memmap

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// perCoreMap is the text of the map of buffers on the cores 0-0 and 1-0 at this address.
func perCoreMap(t *testing.T, address uint64) string {
	t.Helper()
	s := aggregate.New()
	open := event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 1, Devices: []int{0}, Allocator: 1}
	open.Open = new(event.Open)
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 4, BytesPerBank: 0x80000, Base: 0x80000}
	s.Apply(&open)
	for x := range uint16(2) {
		s.Apply(&event.Event{
			TimeNs: 2, Kind: event.Alloc, PID: 1, Devices: []int{0}, Region: event.L1, BufferID: uint64(x), Allocator: 1, Address: address,
			SizeBytes: 0x5000, BytesPerBank: 0x5000, Banks: 1, PerCore: true, Cores: []event.CoreRange{{X0: x, X1: x}},
		})
	}
	m := &Page{Of: "now", Names: &alloc.Namer{}, Snapshot: s.Snapshot()}
	m.Add(s, 3, func(int, event.Region) bool { return true })
	var out bytes.Buffer
	qt.Assert(t, qt.IsNil(m.WriteText(&out, page.Layout{})))
	return strings.Join(strings.Fields(out.String()), " ")
}

func TestMapOfBuffersOnSingleCores(t *testing.T) {
	text := perCoreMap(t, 0x100000-0x5000)
	qt.Check(t, qt.StringContains(text, "4 banks of 512.0 KiB, 2 buffers on single cores"))
	qt.Check(t, qt.StringContains(text, "in the fullest bank: 20.0 KiB in 2 buffers of all banks, 492.0 KiB free in 1 hole"))
	qt.Check(t, qt.StringContains(text, "core 1-0"))

	text = perCoreMap(t, 0)
	qt.Check(t, qt.StringContains(text, "in the fullest bank: 20.0 KiB in 2 buffers of all banks; some addresses differ from core to core"))
	qt.Check(t, qt.StringContains(text, "differs"))
	qt.Check(t, qt.Not(qt.StringContains(text, "free in")))
}
