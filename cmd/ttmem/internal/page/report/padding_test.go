package report

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestTilePaddingIsNamed: where more than a quarter of a region's buffers is padding, with the line that has
// the most of it. It is as well known after the end of the process, and not known without owners.
func TestTilePaddingIsNamed(t *testing.T) {
	const bank = 1 << 20
	for name, test := range map[string]struct {
		region  event.Region
		tensors []string // of buffers of 12 MiB, by line
		exits   bool
		text    string
		json    string
	}{
		"owners are not known": {region: event.DRAM, tensors: []string{""}, json: "[]"},
		"a quarter": {
			region: event.DRAM, tensors: []string{"bf16[1024,4608] TILE", "", ""},
			json: `[{"device":0,"region":"DRAM","bytes":37748736,"known_bytes":12582912,"padding_bytes":3145728,"sites":[` +
				`{"padding_bytes":3145728,"tensor_bytes":9437184,"size_bytes":12582912,"count":1,"name":"model.py:1 call_1 · ttnn.add","class":"tensor","owner":"w[0]","tensor":"bf16[1024,4608] TILE"}]}]`,
		},
		"two lines of DRAM": {
			region: event.DRAM, tensors: []string{"bf16[4096,64,2] TILE", "bf16[1,65536] TILE", "bf16[1024,6144] TILE"},
			text: "Padding of tiles is 64% of the buffers in DRAM; the most at model.py:2 call_2: 128.0 KiB of data takes 12.0 MiB, 96x\n",
		},
		"L1, of a process that ended": {
			region: event.L1, tensors: []string{"bf16[6,1024] TILE"}, exits: true,
			text: "Padding of tiles is 99% of the buffers in L1; the most at model.py:1 call_1: 12.0 KiB of data takes 12.0 MiB, 1024x\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := pagetest.NewRun()
			r.Start(7, "python3 model.py")
			r.Open(7, "n150", 0)
			for line, tensor := range test.tensors {
				r.Id++
				r.Apply(event.Event{
					Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: r.Id, Devices: []int{0}, Region: test.region,
					SizeBytes: 12 * bank, BytesPerBank: bank, Banks: 12, Stack: pagetest.At("ttnn.add", 1+line),
				})
				if tensor != "" {
					r.Own(7, r.Id, fmt.Sprintf("w[%d]", line), tensor)
				}
			}
			if test.exits {
				r.Exit(7, 0)
			}
			p := &Page{r.State.Snapshot(), Options{State: r.State}}
			text := pagetest.Text(t, p, page.Layout{Width: 160})
			if test.text == "" {
				qt.Check(t, qt.Not(qt.StringContains(text, "Padding")))
			}
			qt.Check(t, qt.StringContains(text, test.text))
			var doc struct{ Padding json.RawMessage }
			qt.Assert(t, qt.IsNil(json.Unmarshal(document.Append(nil, p.Document(), nil), &doc)))
			if test.json != "" {
				qt.Check(t, qt.Equals(string(doc.Padding), test.json))
			}
		})
	}
}
