package report

import (
	"encoding/json"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/document"
	"ttmem/cmd/ttmem/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestMostlyTemporaryAllocationsAreNamed: with the line that has the most of their bytes, also after the end of
// the process.
func TestMostlyTemporaryAllocationsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		rounds, kept int
		text         string
	}{
		"many":                {rounds: 600, kept: 1199, text: "1,200 of 2,399 buffers were temporary, 600 of them at model.py:5 call_5\n"},
		"half":                {rounds: 600, kept: 1200},
		"few, of few buffers": {rounds: 10},
	} {
		t.Run(name, func(t *testing.T) {
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
			for range test.kept {
				alloc(9, 1024)
			}
			for range test.rounds {
				r.Free(7, alloc(4, 1024))
				r.Free(7, alloc(5, 4096))
			}
			r.Exit(7, 0)
			p := &Page{r.State.Snapshot(), Options{State: r.State}}
			text := pagetest.Text(t, p, page.Layout{Width: 160})
			if test.text == "" {
				qt.Check(t, qt.Not(qt.StringContains(text, "temporary")))
			}
			qt.Check(t, qt.StringContains(text, test.text))
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
			qt.Check(t, qt.DeepEquals([]int{said.Count, said.Bytes, said.Allocated}, []int{2 * test.rounds, test.rounds * 12 * 5120, 2*test.rounds + test.kept}))
			qt.Assert(t, qt.HasLen(said.Sites, 2))
			qt.Check(t, qt.Equals(said.Sites[0].Name, "model.py:5 call_5 · ttnn.add"))
			qt.Check(t, qt.Equals(said.Sites[0].Bytes, test.rounds*12*4096))
		})
	}
}
