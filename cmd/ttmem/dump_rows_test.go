package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
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
	for _, row := range rowsOf(l) {
		order = append(order, row.Address)
	}
	qt.Check(t, qt.DeepEquals(order, []uint64{0x9000, 0x8000, 0x200000, 0x8000}))
}

// TestDumpSaysWhatPaddingTakes: of buffers whose tensors are known, and in groups the sum.
func TestDumpSaysWhatPaddingTakes(t *testing.T) {
	own := func(id uint64, path, tensor string) event.Event {
		return event.Event{Kind: event.Owner, PID: 4242, BufferID: id, Cause: path, Message: tensor}
	}
	path := writeEvents(t, "padding.ttmem", []event.Event{
		{Kind: event.ProcessStart, PID: 4242, Comm: "python3", Start: &event.Start{Command: "python3 model.py"}},
		pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x8000, 4096, pagetest.Stack("add", "forward", 3), 0), // 48 KiB
		pagetest.Buffer(event.Alloc, 2, event.DRAM, 0x9000, 2048, pagetest.Stack("add", "forward", 3), 0),
		pagetest.Buffer(event.Alloc, 3, event.DRAM, 0xa000, 2048, pagetest.Stack("add", "forward", 4), 0),
		own(1, "flat", "bf16[1,768] TILE"),
		own(2, "whole", "bf16[32,384] TILE"),
		{Kind: event.HostMemory, PID: 4242, SizeBytes: 5 << 30, BytesPerBank: 6 << 30},
	})
	l, err := dumpOf(t, path, viewOptions{at: "end"})
	qt.Assert(t, qt.IsNil(err))
	l.Sort()
	text := pagetest.Text(t, l, page.Layout{})
	qt.Check(t, qt.StringContains(text, "ttnn.add, held by flat · bf16[1,768] TILE, padded 32x from 1.5 KiB\n"))
	qt.Check(t, qt.Equals(strings.Count(text, "padded"), 1))
	qt.Check(t, qt.StringContains(string(document.Append(nil, l.Document(), nil)), `"tensor_bytes":1536,"size_bytes":49152,`))
	qt.Check(t, qt.Equals(strings.Count(string(document.Append(nil, l.Document(), nil)), "tensor_bytes"), 2)) // of the third one it is not known
	for by, want := range map[string]string{
		"line": "" +
			"      bytes         buffers    padding  line\n" +
			"   72.0 KiB   75%         2   46.5 KiB  model.py:3 forward\n" +
			"   24.0 KiB   25%         1        0 B  model.py:4 forward\n",
		"size": "" +
			"      bytes         buffers    padding  size\n" +
			"   48.0 KiB   50%         1   46.5 KiB  32 KiB to 64 KiB\n" +
			"   48.0 KiB   50%         2        0 B  16 KiB to 32 KiB\n",
		"process": "" +
			"      bytes         buffers    padding       host  process\n" +
			"   96.0 KiB  100%         3   46.5 KiB    5.0 GiB  PID 4242 python3 model.py\n",
	} {
		qt.Check(t, qt.Equals(pagetest.Text(t, l.Group(by, 0), page.Layout{}), want))
	}
}
