package report

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestAGrowingHostIsNotToldThatNothingLeaks: the report has the host memory of each process, and names one that
// grows.
func TestAGrowingHostIsNotToldThatNothingLeaks(t *testing.T) {
	for name, grows := range map[string]bool{"steady": false, "growing": true} {
		t.Run(name, func(t *testing.T) {
			r := pagetest.NewRun()
			r.Start(7, "python3 model.py")
			r.Open(7, "n150", 0)
			host := uint64(1 << 30)
			for range 400 { // 80 s
				r.Free(7, r.Alloc(7, event.DRAM, 1024, 12, 0))
				if grows {
					host += 1 << 20
				}
				r.Apply(event.Event{Kind: event.HostMemory, PID: 7, SizeBytes: host, BytesPerBank: 2 << 30})
			}
			text := pagetest.Text(t, &Page{r.State.Snapshot(), Options{State: r.State}}, page.Layout{})
			if !grows {
				qt.Check(t, qt.StringContains(text, "; no leak\n"))
				qt.Check(t, qt.StringContains(text, "\n✓ No leaks found\n\n"))
				qt.Check(t, qt.StringContains(text, "\n Host memory: 1.0 GiB (at most 2.0 GiB)\n"))
				return
			}
			qt.Check(t, qt.Not(qt.StringContains(text, "no leak")))
			qt.Check(t, qt.Matches(text, `(?s).*\nNo leaks found\nHost memory of PID 7, not device memory, grew by 3\d\d\.0 MiB to 1\.4 GiB\n\n.*`))
			qt.Check(t, qt.StringContains(text, "\n Host memory: 1.4 GiB (at most 2.0 GiB)\n"))
		})
	}
}
