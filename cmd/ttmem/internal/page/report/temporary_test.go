package report

import (
	"encoding/json"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestTemporaryBuffersAreCounted: by call site, also after the end of the process. A loop has them in any
// case, so the text has nothing of them.
func TestTemporaryBuffersAreCounted(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(7, "python3 model.py")
	r.Open(7, "n150", 0)
	alloc := func(line int, perBank uint64) uint64 {
		r.Id++
		r.Apply(event.Event{
			Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: r.Id, Devices: []int{0}, Region: event.DRAM, SizeBytes: 12 * perBank,
			BytesPerBank: perBank, Banks: 12, Stack: pagetest.At("ttnn.add", line),
		})
		return r.Id
	}
	const rounds, kept = 600, 1199
	for range kept {
		alloc(9, 1024)
	}
	for range rounds {
		r.Free(7, alloc(4, 1024))
		r.Free(7, alloc(5, 4096))
	}
	r.Exit(7, 0)
	p := &Page{r.State.Snapshot(), Options{State: r.State}}
	qt.Check(t, qt.Not(qt.StringContains(pagetest.Text(t, p, page.Layout{Width: 160}), "temporary")))
	var doc struct {
		Temporary struct {
			Count, Bytes, Allocated int
			Sites                   []struct {
				Name         string
				Count, Bytes int
			}
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(document.Append(nil, p.Document(), nil), &doc)))
	said := doc.Temporary
	qt.Check(t, qt.DeepEquals([]int{said.Count, said.Bytes, said.Allocated}, []int{2 * rounds, rounds * 12 * 5120, 2*rounds + kept}))
	qt.Assert(t, qt.HasLen(said.Sites, 2))
	qt.Check(t, qt.Equals(said.Sites[0].Name, "model.py:5 call_5 · ttnn.add"))
	qt.Check(t, qt.Equals(said.Sites[0].Bytes, rounds*12*4096))
}
