package report

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestBuffersThatATraceMayOverwriteAreFirst: with their line, before leaks and peaks.
func TestBuffersThatATraceMayOverwriteAreFirst(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(7, "python3 model.py")
	r.Open(7, "n150", 0)
	step := func(kind event.Kind) {
		r.Apply(event.Event{Kind: kind, PID: 7, ProgramID: 3, Devices: []int{0}, Stack: pagetest.At("ttnn.trace", 8)})
	}
	step(event.TraceBegin)
	step(event.TraceEnd)
	for range 2 {
		r.Id++
		r.Apply(event.Event{
			Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: r.Id, Devices: []int{0}, Region: event.DRAM, SizeBytes: 12288,
			BytesPerBank: 1024, Banks: 12, Stack: pagetest.At("ttnn.empty", 9),
		})
		step(event.TraceReplay)
	}
	r.Apply(event.Event{Kind: event.Owner, PID: 7, BufferID: r.Id - 1, Cause: "model.cache", Count: 1})
	text := pagetest.Text(t, &Page{r.State.Snapshot(), Options{State: r.State}}, page.Layout{Width: 100})
	qt.Check(t, qt.StringContains(text, "2 buffers may have been overwritten by a trace; "))
	qt.Check(t, qt.Matches(text, `(?s).*\n2 buffers that a trace may have overwritten\n +24.0 KiB +2 buffers  DRAM  model.py:9 .*model\.cache.*No leaks found.*`))
	other := pagetest.Text(t, &Page{r.State.Snapshot(), Options{State: r.State, PID: 8}}, page.Layout{Width: 100})
	qt.Check(t, qt.Not(qt.StringContains(other, "2 buffers that")))
}
