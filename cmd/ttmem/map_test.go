package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/memmap"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// holedEvents leave holes in DRAM, where one place is used again and again, and have
// circular buffers below the buffers of L1. All is freed in the end.
func holedEvents() []event.Event {
	r := newTrainingRun(100)
	add := func(kind event.Kind, id uint64, region event.Region, address, perBank uint64, line int) {
		r.add(pagetest.Buffer(kind, id, region, address, perBank, pagetest.Stack("empty", "Model.load", line), 0, 1))
	}
	for i := range uint64(8) {
		add(event.Alloc, i, event.DRAM, 0x1000+i*0x10000, 0x10000, 10+int(i))
	}
	for i := range uint64(8) {
		if i%2 == 1 {
			add(event.Free, i, event.DRAM, 0, 0, 0)
		}
	}
	for i := range uint64(20) {
		add(event.Alloc, 100+i, event.DRAM, 0x11000, 0x800, 30)
		if i < 19 {
			add(event.Free, 100+i, event.DRAM, 0, 0, 0)
		}
	}
	add(event.Alloc, 200, event.L1, 0x17000, 0x800, 50)
	add(event.Alloc, 201, event.L1, 0x17800, 0x800, 51)
	for i := range uint64(2) {
		r.add(event.Event{
			Kind: event.CBAlloc, ProgramID: i, Devices: []int{0, 1}, Address: 0x8000 + i*0x400, SizeBytes: 0x800,
			Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer, Stack: pagetest.Stack("matmul", "Model.step", 40),
		})
	}
	r.mark("loaded")
	r.add(event.Event{Kind: event.ProcessExit})
	return r.events
}

// mapOf is the page of a file.
func mapOf(t *testing.T, path string, o viewOptions) *memmap.Page {
	t.Helper()
	if o.at == "" {
		o.at = "loaded"
	}
	o.source.File = path
	m, _, err := o.readMap(o.at)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(source.CheckChips(o.devices, m.Snapshot, m.Of)))
	folder := regexp.MustCompile(`\S*/(\w+\.ttmem)`)
	m.Of, m.Ended = folder.ReplaceAllString(m.Of, "$1"), folder.ReplaceAllString(m.Ended, "$1")
	return m
}

func TestTheMap(t *testing.T) {
	path := writeEvents(t, "holed.ttmem", holedEvents())
	old := holedEvents()
	for i := range old {
		for r := range old[i].Opened().Capacities { // as an older ttmem recorded it
			old[i].Opened().Capacities[r].Base = 0
		}
	}
	without := writeEvents(t, "old.ttmem", old)
	for _, test := range []struct {
		name    string
		path    string
		options viewOptions
		layout  page.Layout
	}{
		{"map", path, viewOptions{n: 12}, page.Layout{}},
		{"map_narrow", path, viewOptions{n: 4}, page.Layout{Width: 80}},
		{"map_color", path, viewOptions{n: 4, devices: []int{1}}, page.Layout{Painter: page.Painter{Color: true}, Width: 80}},
		{"map_ascii", path, viewOptions{n: 4, regions: []string{"l1"}}, page.Layout{Painter: page.Painter{ASCII: true}}},
		{"map_peak", path, viewOptions{n: 12, at: "peak", regions: []string{"DRAM"}}, page.Layout{}},
		{"map_end", path, viewOptions{at: "end"}, page.Layout{}},
		{"map_empty", path, viewOptions{at: "end", regions: []string{"DRAM"}}, page.Layout{}},
		{"map_unknown", without, viewOptions{}, page.Layout{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := pagetest.Text(t, mapOf(t, test.path, test.options), test.layout)
			golden.Check(t, test.name+".golden", text)
			if test.layout.Width > 0 {
				pagetest.CheckWidth(t, text, test.layout.Width)
			}
		})
	}
}

func TestTheMapAsJSON(t *testing.T) {
	path := writeEvents(t, "holed.ttmem", holedEvents())
	b := document.Append(nil, mapOf(t, path, viewOptions{}).Document(), nil)
	var doc memmap.Document
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &doc)))
	qt.Assert(t, qt.HasLen(doc.Regions, 2))
	dram, l1 := doc.Regions[0], doc.Regions[1]
	qt.Check(t, qt.DeepEquals(dram.Devices, []int{0, 1}))
	qt.Check(t, qt.Equals(dram.Region, "DRAM"))
	qt.Check(t, qt.HasLen(dram.Blocks, 5))
	// behind the second block, and behind the others
	qt.Check(t, qt.DeepEquals(dram.Holes, []memmap.Hole{
		{Address: 0x11800, BytesPerBank: 0xf800}, {Address: 0x31000, BytesPerBank: 0x10000},
		{Address: 0x51000, BytesPerBank: 0x10000}, {Address: 0x71000, BytesPerBank: 0x90000},
	}))
	qt.Check(t, qt.Equals(dram.Free.LargestFreeBytesPerBank, 0x90000))
	qt.Check(t, qt.Equals(*dram.Fragmentation, 1-float64(0x90000)/float64(0xf800+2*0x10000+0x90000)))
	qt.Check(t, qt.Equals(dram.Blocks[1].Name, "model.py:30 Model.load · ttnn.empty"))
	qt.Check(t, qt.DeepEquals(l1.Statics, []memmap.Static{{
		Address: 0x8000, BytesPerCore: 0xc00, Programs: 2, Name: "CBs, DFBs of 2 programs · model.py:40 Model.step · ttnn.matmul",
	}}))
}

func TestTheMapSaysWhatIsWrong(t *testing.T) {
	path := writeEvents(t, "holed.ttmem", holedEvents())
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"unknown mark": {[]string{path, "--at", "warm"}, "there are loaded"},
		"region":       {[]string{path, "--region", "SRAM"}, "choose DRAM, L1, L1_SMALL, TRACE"},
		"no banks":     {[]string{path, "--region", "CB"}, "circular buffers are in the map of L1"},
		"chip":         {[]string{path, "--chip", "7"}, "--chip 7: no such chip at the end of " + path + "; available: chips 0, 1"},
		"limit":        {[]string{path, "-n", "-1"}, "0 lists all"},
		"live at":      {[]string{"--at", "peak"}, "--at is a moment of a recording"},
		"a command":    {[]string{"--", "python", "x.py"}, "ttmem run -o FILE -- python x.py"},
		"no file":      {[]string{"/no/such/file"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			err := execute(append([]string{"map"}, c.args...)...)
			qt.Assert(t, qt.IsNotNil(err))
			qt.Check(t, qt.StringContains(err.Error(), c.says))
			qt.Check(t, qt.IsFalse(strings.Contains(err.Error(), "\n")))
		})
	}
}
