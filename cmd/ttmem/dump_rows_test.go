package main

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestBuffersComeBeforeWhatIsLaidOverOthers: a program's circular buffers take more of L1
// than buffers do, and share it with those of the next program.
func TestBuffersComeBeforeWhatIsLaidOverOthers(t *testing.T) {
	cores := []event.CoreRange{{X1: 7, Y1: 7}}
	circular := event.Event{
		Kind: event.CBAlloc, PID: 4242, ProgramID: 5, Devices: []int{0}, Region: event.CB, Cores: cores,
		StaticKind: event.CircularBuffer, Address: 0x8000, SizeBytes: 1 << 20,
	}
	larger := circular
	larger.Address, larger.SizeBytes = 0x200000, 2<<20
	path := writeEvents(t, "static.ttmem", []event.Event{
		circular,
		pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x8000, 2048, pagetest.Stack("add", "forward", 3), 0),
		larger,
		pagetest.Buffer(event.Alloc, 2, event.DRAM, 0x9000, 4096, pagetest.Stack("add", "forward", 4), 0),
	})
	l, err := dumpOf(t, path, viewOptions{at: "end"})
	qt.Assert(t, qt.IsNil(err))
	l.Sort()
	var order []uint64
	for i := range l.Rows {
		order = append(order, l.Rows[i].Address)
	}
	qt.Check(t, qt.DeepEquals(order, []uint64{0x9000, 0x8000, 0x200000, 0x8000}))
}
