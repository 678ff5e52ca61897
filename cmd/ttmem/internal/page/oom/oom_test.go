package oom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

func pageOf(p Page, events ...event.Event) *Page {
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	p.Of, p.Snapshot = "in model.ttmem", s.Snapshot()
	p.Choose()
	return &p
}

func TestOOMPages(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      Page
		layout page.Layout
	}{
		{"oom", Page{}, page.Layout{}},
		{"oom_ascii", Page{Limit: 2}, page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}},
		{"oom_narrow", Page{Limit: 2}, page.Layout{Painter: page.Painter{Color: true}, Width: 60}},
		{"oom_filter", Page{PIDs: []int{8}}, page.Layout{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := pagetest.Text(t, pageOf(c.p, pagetest.Failures()...), c.layout)
			pagetest.CheckWidth(t, text, c.layout.Columns())
			golden.Check(t, c.name+".golden", text)
		})
	}
}

// heldPage is a failure for which six buffers would have to go: four from before the attach, of which
// one has no known owner, and two of one line.
func heldPage() *Page {
	r := pagetest.NewRun()
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}}
	open.Open = new(event.Open)
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: 100_000, Base: 0x10000}
	r.Start(7, "python model.py")
	r.Apply(open)
	for i, path := range []string{
		"model.layers[0].wq", "model.layers[1].wq", "cache['k']", "", "local x of forward()", "\x1b[2Jcache['k']",
	} {
		e := event.Event{
			Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: uint64(i + 1), Devices: []int{0}, Region: event.L1,
			Address: 0x10000 + uint64(i)*16_000, SizeBytes: 64 * 8000, BytesPerBank: 8000, Banks: 64, BeforeAttach: i < 4,
		}
		if i >= 4 {
			e.Stack = pagetest.At("ttnn.empty", 10, 30)
		}
		r.Apply(e)
		if path != "" {
			r.Own(7, e.BufferID, path, "bf16[32,32] TILE")
		}
	}
	r.Apply(event.Event{
		Kind: event.AllocFailed, PID: 7, Allocator: 1, Devices: []int{0}, Stack: pagetest.At("ttnn.matmul", 40), Region: event.L1,
		SizeBytes: 90_000 * 64, BytesPerBank: 90_000, Banks: 64, Reason: event.ReasonOutOfMemory,
	})
	owned := r.State.Owned()
	p := &Page{Of: "in model.ttmem", Snapshot: r.State.Snapshot(), Holders: func(*memory.Failure) []memory.Buffer { return owned }}
	p.Choose()
	return p
}

// TestTheHoldersOfWhatWouldHaveToGo are beside their call sites or, without a stack, in place of it.
func TestTheHoldersOfWhatWouldHaveToGo(t *testing.T) {
	for name, layout := range map[string]page.Layout{"oom_held": {}, "oom_held_narrow": {Width: 80}} {
		text := pagetest.Text(t, heldPage(), layout)
		pagetest.CheckWidth(t, text, max(layout.Width, 140))
		golden.Check(t, name+".golden", text)
	}
	b := document.Append(nil, heldPage().Document(), nil)
	qt.Check(t, qt.StringContains(string(b), `"held_by":[{"bytes_per_bank":16000,"buffers":2,"owner":"model.layers[*].wq","tensor":"bf16[32,32] TILE"},`))
	pagetest.CheckSchema(t, "oom", string(b))
}

func TestNoFailureIsANormalAnswer(t *testing.T) {
	qt.Check(t, qt.Equals(pagetest.Text(t, pageOf(Page{}), page.Layout{}), "No allocation failed in model.ttmem.\n"))
	for _, columns := range []int{40, 60, 80, 120} {
		text := pagetest.Text(t, pageOf(Page{}, pagetest.Failures()...), page.Layout{Width: columns})
		pagetest.CheckWidth(t, text, columns)
	}
	text := pagetest.Text(t, pageOf(Page{PIDs: []int{9}}, pagetest.Failures()...), page.Layout{})
	qt.Check(t, qt.Equals(text, "No allocation of PID 9 failed in model.ttmem; 6 others did.\n"))
	alone := pageOf(Page{PIDs: []int{9}}, pagetest.Failures()...)
	alone.Of = "in PID 9"
	alone.Snapshot.FailureCount = 0
	qt.Check(t, qt.Equals(pagetest.Text(t, alone, page.Layout{}), "No allocation of PID 9 failed.\n"))
}

// TestOOMJSON has the fields that are documented.
func TestOOMJSON(t *testing.T) {
	p := pageOf(Page{Limit: 3}, pagetest.Failures()...)
	var said struct {
		V        int
		Omitted  int
		Failures []map[string]any
	}
	b := document.Append(nil, p.Document(), nil)
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &said)))
	qt.Check(t, qt.Equals(said.V, 1))
	qt.Check(t, qt.Equals(said.Omitted, 3))
	large, clash, other := said.Failures[0], said.Failures[1], said.Failures[2]
	for field, want := range map[string]any{
		"reason": "out_of_memory", "too_large": true, "region": "L1", "needed_bytes_per_bank": 200_000.0,
		"free_bytes_per_bank": 59_000.0, "largest_free_block_bytes": 20_000.0, "capacity_bytes_per_bank": 100_000.0,
		"allocated_bytes_per_bank": 41_000.0, "name": "model.py:40 call_40 · ttnn.matmul",
	} {
		qt.Check(t, qt.Equals(large[field], want), qt.Commentf("%s", field))
	}
	for field, want := range map[string]any{
		"reason": "static_clash", "region": "CB", "program_id": 4.0,
		"lowest_l1_address": 0x10000 + 20_000.0, "static_region_end": 0x10000 + 30_000.0,
	} {
		qt.Check(t, qt.Equals(clash[field], want), qt.Commentf("%s", field))
	}
	qt.Check(t, qt.Equals(other["reason"], ""))
	for _, none := range []string{"free_bytes_per_bank", "program_id", "holders"} {
		qt.Check(t, qt.IsNil(other[none]))
	}
}

// Where the library's message has other figures than ttmem counts, the message's are shown, and a line
// says what ttmem counts.
func TestTheFiguresOfTheMessageAreShown(t *testing.T) {
	open := event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 7, Allocator: 5, Devices: []int{0}}
	open.Open = new(event.Open)
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: 1393312, Base: 105824}
	failed := event.Event{
		TimeNs: 2, Kind: event.AllocFailed, PID: 7, Allocator: 5, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory,
		SizeBytes: 1340000 * 64, BytesPerBank: 1340000, Banks: 64,
		Message: "Out of Memory: Not enough space to allocate 85760000 B L1 buffer across 64 banks, where each bank needs to store 1340000 B, " +
			"but bank size is 1327776 B (allocated: 0 B, free: 1327776 B, largest free block: 1327776 B).",
	}
	p := pageOf(Page{}, open, failed)
	text := pagetest.Text(t, p, page.Layout{})
	qt.Check(t, qt.StringContains(text, "capacity                  1327776 B"))
	qt.Check(t, qt.StringContains(strings.ReplaceAll(text, "\n ", " "), "The library's figures; ttmem counts largest free block 1393312 B, free 1393312 B, capacity 1393312 B."))
	qt.Check(t, qt.StringContains(text, "Larger than an empty bank"))
	qt.Check(t, qt.Equals(Brief(p.Failures[0]), "L1: too large; needs 1340000 B per bank, which has 1327776 B"))
	b := document.Append(nil, p.Document(), nil)
	var said struct {
		Failures []struct {
			Capacity uint64 `json:"capacity_bytes_per_bank"`
			Counted  event.BankState
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &said)))
	qt.Check(t, qt.Equals(said.Failures[0].Capacity, 1327776))
	qt.Check(t, qt.Equals(said.Failures[0].Counted, event.BankState{CapacityBytes: 1393312, FreeBytes: 1393312, LargestFreeBytes: 1393312}))
}

// TestAdviceIsReplayed: each advice says whether replay proves it and, if not, why.
func TestAdviceIsReplayed(t *testing.T) {
	events := pagetest.Failures()
	play := func(handle func(*event.Event)) error {
		for i := range events {
			handle(&events[i])
		}
		return nil
	}
	failing := func(play func(func(*event.Event)) error) string {
		p := pageOf(Page{}, events...)
		qt.Assert(t, qt.IsNil(p.Prove(play)))
		pagetest.CheckSchema(t, "oom", string(document.Append(nil, p.Document(), nil)))
		return pagetest.Text(t, p, page.Layout{})
	}
	// the made-up addresses are not those of the library's allocator
	qt.Check(t, qt.StringContains(failing(play), "not proved: "+"an earlier address was another one than predicted"))
	qt.Check(t, qt.StringContains(failing(nil), "not proved: "+needsRecording))
	qt.Check(t, qt.StringContains(failing(func(func(*event.Event)) error { return nil }), "not proved: "+notReached))

	// where the allocator would place them: the hole is between them
	events = events[:0:0]
	for _, e := range pagetest.Failures() {
		switch e.BufferID {
		case 2:
			e.Address, e.BytesPerBank = 0x10000+35_000, 25_000
		case 3:
			e.Address, e.BytesPerBank = 0x10000+25_000, 10_000
		}
		events = append(events, e)
		if e.BufferID == 3 {
			events = append(events, event.Event{TimeNs: e.TimeNs, Kind: event.Free, PID: 7, BufferID: 2, Reason: event.ReasonExplicit})
		}
	}
	text := failing(play)
	qt.Check(t, qt.StringContains(text, fmt.Sprintf("proved by replay: it goes to %#x", 0x10000+30_000)))
	without, err := NewWhatIf(map[string][]string{"without": {"model.py:12"}})
	qt.Assert(t, qt.IsNil(err))
	p := pageOf(Page{WhatIf: without}, events...)
	qt.Assert(t, qt.IsNil(p.Prove(play)))
	text = pagetest.Text(t, p, page.Layout{})
	qt.Check(t, qt.StringContains(text, "Without model.py:12: it fits: it goes to "))
	qt.Check(t, qt.StringContains(text, "Without model.py:12: it still fails; proved by replay"))
	qt.Check(t, qt.StringContains(text, "2 allocations left out"))
	pagetest.CheckSchema(t, "oom", string(document.Append(nil, p.Document(), nil)))
}

// TestTogether has the combinations of the first changes first.
func TestTogether(t *testing.T) {
	a, b, c := flagValue{"set", "a"}, flagValue{"first", "b"}, flagValue{"move", "c"}
	qt.Check(t, qt.Equals(fmt.Sprint(together([]flagValue{a, b, c}, 1)), fmt.Sprint([][]flagValue{{a}, {b}, {c}})))
	qt.Check(t, qt.Equals(fmt.Sprint(together([]flagValue{a, b, c}, 2)), fmt.Sprint([][]flagValue{{a, b}, {a, c}, {b, c}})))
}

// TestTheMostWelcomeChangeIsBetter, and of the same kinds that with the fewest allocations.
func TestTheMostWelcomeChangeIsBetter(t *testing.T) {
	one := func(moved uint64, kinds ...string) *try {
		t := &try{WhatIf: new(WhatIf)}
		t.Moved = moved
		for _, kind := range kinds {
			t.flags = append(t.flags, flagValue{kind, "x"})
		}
		return t
	}
	list := []*try{one(9, "free"), one(9, "set"), one(9, "clear-program-cache-at"), one(1, "first"), one(2, "first"), one(0, "move"), one(0, "move", "move")}
	for i := range list {
		for j := range list {
			qt.Check(t, qt.Equals(list[i].isBetter(list[j]), i < j), qt.Commentf("%d %d", i, j))
		}
	}
}

// TestARemedy says what was found or, if nothing was, how much was tried.
func TestARemedy(t *testing.T) {
	p := pageOf(Page{}, pagetest.Failures()...)
	f := p.Failures[2]
	for want, r := range map[string]*remedy{
		"It fits with a.py:1 in DRAM, and nothing that worked fails.   proved by replay: it goes to 0x10": {
			flags: []flagValue{{"move", "a.py:1:DRAM"}}, text: "with a.py:1 in DRAM", proof: replay.Verdict{Fits: true, Address: 16}, replayed: 3,
		},
		"No change was found with which all fits: 1 change replayed.":                       {replayed: 1},
		"No change was found with which all fits: 64 changes replayed, which is the limit.": {replayed: 64, more: true},
	} {
		p.remedies = map[*memory.Failure]*remedy{f: r}
		qt.Check(t, qt.StringContains(strings.ReplaceAll(pagetest.Text(t, p, page.Layout{}), "\n ", " "), want))
		pagetest.CheckSchema(t, "oom", string(document.Append(nil, p.Document(), nil)))
	}
}

// TestALargeRecordingIsNotReplayedUnasked: one without failures is replayed only for a change that the user asks about.
func TestALargeRecordingIsNotReplayedUnasked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		p, played := pageOf(Page{Large: true}), false
		if asked {
			var err error
			p.WhatIf, err = NewWhatIf(map[string][]string{"set": {"l1_small_size=0"}})
			qt.Assert(t, qt.IsNil(err))
		}
		qt.Assert(t, qt.IsNil(p.Prove(func(func(*event.Event)) error {
			played = true
			return nil
		})))
		qt.Check(t, qt.Equals(played, asked))
		var out bytes.Buffer
		qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{Width: 200})))
		qt.Check(t, qt.Equals(strings.Contains(out.String(), "The smallest sizes were not searched: the recording is large."), !asked))
	}
}
