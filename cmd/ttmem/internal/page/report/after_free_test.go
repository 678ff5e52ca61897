package report

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestUsesAfterFreeAreReported with the lines of the allocation, the free and the run.
func TestUsesAfterFreeAreReported(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(7, "python3 model.py")
	r.Open(7, "n150", 0)
	run := func() {
		r.Apply(event.Event{
			Kind: event.ProgramRun, PID: 7, ProgramID: 3, Devices: []int{0}, Uses: &event.Uses{Arguments: []uint32{0x101040}},
			Stack: pagetest.At("ttnn.generic_op", 11),
		})
	}
	run()
	r.Apply(event.Event{
		Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: 1, Devices: []int{0}, Region: event.DRAM, Address: 0x101040, SizeBytes: 12288,
		BytesPerBank: 1024, Banks: 12, Stack: pagetest.At("ttnn.empty", 9),
	})
	r.Apply(event.Event{Kind: event.Free, PID: 7, BufferID: 1, Reason: event.ReasonExplicit, Stack: pagetest.At("deallocate", 10)})
	run()
	run()
	text := pagetest.Text(t, &Page{r.State.Snapshot(), Options{State: r.State}}, page.Layout{Width: 200})
	qt.Check(t, qt.Matches(text, `(?s).*\nBuffers used after their free\n    DRAM at 0x101040, allocated by model.py:9 .*ttnn.empty, freed\s+by model.py:10[^:·]*:\s+2\s+later\s+runs\s+by model.py:11 .*ttnn.generic_op\n.*`), qt.Commentf("%s", text))
	other := pagetest.Text(t, &Page{r.State.Snapshot(), Options{State: r.State, PID: 8}}, page.Layout{Width: 100})
	qt.Check(t, qt.Not(qt.StringContains(other, "after their free")))
}
