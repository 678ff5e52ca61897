package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

var (
	weightsAt = at("ttnn.empty", 10, 30)
	cacheAt   = at("ttnn.empty", 12, 31, 32, 33, 34, 35, 36)
	forwardAt = at("ttnn.matmul", 40, 41)
	softmaxAt = at("ttnn.softmax", 50)
)

// oomEvents are of a device whose L1 is 100,000 bytes from the address 0x10000 on: a
// fragmented one, in which the same fails again, and a program that reaches into it.
func oomEvents() []event.Event {
	open := event.Event{TimeNs: 1e9, Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}}
	open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: 100_000, Base: 0x10000}
	buffer := func(ms, id, address, perBank uint64, stack *event.Stack) event.Event {
		return event.Event{
			TimeNs: 1e9 + ms*1e6, Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: id, Devices: []int{0}, Stack: stack,
			Region: event.L1, Address: address, SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64,
		}
	}
	fail := func(ms, perBank uint64) event.Event {
		return event.Event{
			TimeNs: 1e9 + ms*1e6, Kind: event.AllocFailed, PID: 7, Allocator: 1, Devices: []int{0}, Stack: forwardAt,
			Region: event.L1, SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64,
			Reason: event.ReasonOutOfMemory, Message: "TT_FATAL @ x.cpp:1\ninfo:\nOut of Memory: no\nbacktrace:\n",
		}
	}
	return []event.Event{
		{TimeNs: 1e9, Kind: event.ProcessStart, PID: 7, Comm: "python", Command: "python model.py"},
		open,
		buffer(100, 1, 0x10000+60_000, 40_000, weightsAt),
		buffer(200, 2, 0x10000+20_000, 500, cacheAt), buffer(201, 3, 0x10000+40_000, 500, cacheAt),
		fail(300, 30_000), fail(350, 30_000), fail(400, 70_000), fail(500, 200_000),
		{
			TimeNs: 1.6e9, Kind: event.CBAlloc, PID: 7, ProgramID: 4, Devices: []int{0}, Stack: softmaxAt, Region: event.CB,
			Address: 0x10000, SizeBytes: 30_000, Cores: []event.CoreRange{{X1: 7, Y1: 3}}, StaticKind: event.CircularBuffer,
		},
		{
			TimeNs: 1.7e9, Kind: event.AllocFailed, PID: 7, ProgramID: 4, Devices: []int{0}, Stack: softmaxAt, Region: event.CB,
			StaticKind: event.CircularBuffer, Reason: event.ReasonStaticClash, Message: "clash",
		},
		{TimeNs: 1.8e9, Kind: event.AllocFailed, PID: 8, Devices: []int{1}, Region: event.DRAM, Message: "something\x1b[2J else"},
		{TimeNs: 2e9, Kind: event.ProcessExit, PID: 7},
	}
}

func oomPageOf(t *testing.T, o oomOptions, events ...event.Event) *oomPage {
	t.Helper()
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	p, err := newOOMPage(s.Snapshot(), &watched{of: "in model.ttmem"}, &o)
	qt.Assert(t, qt.IsNil(err))
	return p
}

func (p *oomPage) text(t *testing.T, layout page.Layout) string {
	t.Helper()
	var b bytes.Buffer
	qt.Assert(t, qt.IsNil(p.write(&b, layout)))
	return b.String()
}

func TestOOMPages(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      oomOptions
		layout page.Layout
	}{
		{"oom", oomOptions{}, page.Layout{}},
		{"oom_ascii", oomOptions{n: 2}, page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}},
		{"oom_narrow", oomOptions{n: 2}, page.Layout{Painter: page.Painter{Color: true}, Width: 60}},
		{"oom_filter", oomOptions{source: sourceOptions{pids: []int{8}}}, page.Layout{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := oomPageOf(t, c.o, oomEvents()...).text(t, c.layout)
			for line := range strings.Lines(colors.ReplaceAllString(text, "")) {
				limit := c.layout.Columns()
				qt.Check(t, qt.IsTrue(page.Width(strings.TrimRight(line, "\n")) <= limit), qt.Commentf("%q", line))
			}
			checkGolden(t, c.name+".golden", text)
		})
	}
}

func TestNoFailureIsANormalAnswer(t *testing.T) {
	qt.Check(t, qt.Equals(oomPageOf(t, oomOptions{}).text(t, page.Layout{}), "No allocation failed in model.ttmem.\n"))
	text := oomPageOf(t, oomOptions{source: sourceOptions{pids: []int{9}}}, oomEvents()...).text(t, page.Layout{})
	qt.Check(t, qt.StringContains(text, "6 others did, of which none is what the flags ask for."))
}

// TestOOMJSON has the fields that are documented.
func TestOOMJSON(t *testing.T) {
	p := oomPageOf(t, oomOptions{json: true, n: 3}, oomEvents()...)
	var said struct {
		V        int
		Omitted  int
		Failures []map[string]any
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(p.text(t, page.Layout{})), &said)))
	qt.Check(t, qt.Equals(said.V, 1))
	qt.Check(t, qt.Equals(said.Omitted, 3))
	large, clash, other := said.Failures[0], said.Failures[1], said.Failures[2]
	for field, want := range map[string]any{
		"reason": "out_of_memory", "too_large": true, "region": "L1", "needed_bytes_per_bank": 200_000.0,
		"free_bytes_per_bank": 59_000.0, "largest_free_block_bytes": 20_000.0, "capacity_bytes_per_bank": 100_000.0,
		"allocated_bytes_per_bank": 41_000.0, "name": "ttnn.matmul · model.py:40 call_40",
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
