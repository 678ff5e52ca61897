package ops

import (
	"encoding/json"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// events run four operations: one twice, from two stacks of a line; one whose runs are not
// reported; and one on another chip.
func events() []event.Event {
	var now uint64
	at := func(e event.Event) event.Event {
		now += 1e6
		e.TimeNs, e.PID = now, 7
		return e
	}
	open := func(pid, chip int) event.Event {
		e := at(event.Event{Kind: event.DeviceOpen, Allocator: 1, Devices: []int{chip}, Open: &event.Open{Capacities: pagetest.Capacities}})
		e.PID = pid
		return e
	}
	static := func(program, bytes uint64, kind event.StaticKind, stack *event.Stack, chip int) event.Event {
		return at(event.Event{
			Kind: event.CBAlloc, Region: event.CB, ProgramID: program, Devices: []int{chip}, Address: 0x8000, SizeBytes: bytes,
			Cores: []event.CoreRange{{X0: 2, Y0: 1, X1: 3, Y1: 1}}, StaticKind: kind, Stack: stack,
		})
	}
	run := func(program uint64, stack *event.Stack, chip int) event.Event {
		return at(event.Event{Kind: event.ProgramRun, ProgramID: program, Devices: []int{chip}, Stack: stack})
	}
	tensor := at(event.Event{Kind: event.Alloc, BufferID: 1, Allocator: 1, Devices: []int{0}, Region: event.L1, Address: 0x10000, BytesPerBank: 4096, Banks: 64})
	softmax, again, add := pagetest.At("ttnn.softmax", 50), pagetest.At("ttnn.softmax", 50, 60), pagetest.At("ttnn.add", 70)
	list := []event.Event{
		at(event.Event{Kind: event.ProcessStart, Start: &event.Start{Command: "python model.py"}, Comm: "python"}), open(7, 0), tensor,
		static(1, 1024, event.CircularBuffer, pagetest.At("ttnn.matmul", 40), 0), // without runs
		run(2, softmax, 0), static(2, 50_000, event.DataflowBuffer, softmax, 0),
		run(2, again, 0), run(3, again, 0), static(3, 61_300, event.DataflowBuffer, again, 0), static(3, 100, event.Scratchpad, again, 0),
		open(7, 1), run(4, add, 1), static(4, 2048, event.CircularBuffer, add, 1),
	}
	for range 1233 {
		list = append(list, run(4, add, 1))
	}
	return list
}

func everyRegion(int, event.Region) bool { return true }

func pageOf(o Options) *Page {
	s := aggregate.New()
	for _, e := range events() {
		s.Apply(&e)
	}
	o.Of, o.Snapshot = "in model.ttmem", s.Snapshot()
	p := New(o)
	p.Add(s, everyRegion)
	return p
}

func TestOpsPages(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Options
		layout page.Layout
	}{
		{"ops", Options{}, page.Layout{}},
		{"ops_80", Options{}, page.Layout{Width: 80}},
		{"ops_color", Options{Limit: 2}, page.Layout{Painter: page.Painter{Color: true, ASCII: true}, Width: 120}},
		{"ops_chip", Options{Filter: alloc.Filter{Devices: []int{1}}}, page.Layout{Width: 80}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := pagetest.Text(t, pageOf(c.o), c.layout)
			if c.layout.Width > 0 {
				pagetest.CheckWidth(t, text, c.layout.Width)
			}
			golden.Check(t, c.name+".golden", text)
		})
	}
}

func TestNoOperationIsANormalAnswer(t *testing.T) {
	p := New(Options{Of: "in model.ttmem", Snapshot: aggregate.New().Snapshot()})
	qt.Check(t, qt.Equals(pagetest.Text(t, p, page.Layout{}), "No operation ran in model.ttmem.\n"))
	p = pageOf(Options{Filter: alloc.Filter{Devices: []int{5}}})
	qt.Check(t, qt.Equals(pagetest.Text(t, p, page.Layout{}), "No matching operation ran in model.ttmem; 4 others did.\n"))
}

// Replays of captured traces are runs, in a column of their own.
func TestOpsOfTraces(t *testing.T) {
	s := aggregate.New()
	for _, e := range events()[:10] {
		s.Apply(&e)
	}
	again := pagetest.At("ttnn.softmax", 50, 60)
	step := func(kind event.Kind, id uint64) {
		s.Apply(&event.Event{TimeNs: 2e9, Kind: kind, PID: 7, ProgramID: id, Devices: []int{0}, Stack: pagetest.At("execute_trace", 90)})
	}
	step(event.TraceBegin, 1)
	for range 2 {
		s.Apply(&event.Event{TimeNs: 2e9, Kind: event.ProgramRun, PID: 7, ProgramID: 3, Devices: []int{0}, Stack: again})
	}
	step(event.TraceEnd, 1)
	for range 30 {
		step(event.TraceReplay, 1)
	}
	step(event.TraceReplay, 2) // its capture was not seen
	p := New(Options{Of: "in model.ttmem", Snapshot: s.Snapshot()})
	p.Add(s, everyRegion)
	golden.Check(t, "ops_traces.golden", pagetest.Text(t, p, page.Layout{Width: 100}))
	b := document.Append(nil, p.Document(), nil)
	var said struct {
		Operations []struct {
			Runs, Replays uint64
			Line          int
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &said)))
	found := make(map[int][2]uint64)
	for _, o := range said.Operations {
		found[o.Line] = [2]uint64{o.Runs, o.Replays}
	}
	qt.Check(t, qt.DeepEquals(found, map[int][2]uint64{40: {}, 50: {65, 60}, 90: {0, 1}}))
}

// TestOpsJSON has the fields that docs/ops.md documents.
func TestOpsJSON(t *testing.T) {
	b := document.Append(nil, pageOf(Options{Limit: 2}).Document(), nil)
	var said struct {
		V, Omitted, Forgotten int
		Operations            []map[string]any
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &said)))
	qt.Check(t, qt.DeepEquals([]int{said.V, said.Omitted, said.Forgotten}, []int{1, 1, 0}))
	qt.Assert(t, qt.HasLen(said.Operations, 2))
	first := said.Operations[0]
	for field, want := range map[string]any{
		"pid": 7.0, "process": "python model.py", "devices": []any{0.0}, "runs": 3.0, "first_ns": 5e6, "last_ns": 8e6,
		"name": "model.py:50 call_50 · ttnn.softmax", "op": "ttnn.softmax", "function": "call_50", "line": 50.0,
		"peak": map[string]any{
			"time_ns": 10e6, "program_id": 3.0, "device": 0.0, "core": []any{2.0, 1.0}, "bytes": 65496.0, "tensor_bytes": 4096.0,
			"cb_bytes": 0.0, "dfb_bytes": 61300.0, "scratchpad_bytes": 100.0, "capacity_bytes": 65536.0, "headroom_bytes": 40.0,
		},
	} {
		qt.Check(t, qt.DeepEquals(first[field], want), qt.Commentf("%s", field))
	}
	_, reported := said.Operations[1]["runs"]
	qt.Check(t, qt.IsFalse(reported))
	qt.Check(t, qt.HasLen(first["stack"].([]any), 3))
}

// TestOpsCountTemporaryBuffers: those of all call sites with the operation's name and process, in JSON.
func TestOpsCountTemporaryBuffers(t *testing.T) {
	s := aggregate.New()
	list := events()
	now := list[len(list)-1].TimeNs
	stacks := []*event.Stack{pagetest.At("ttnn.softmax", 50), pagetest.At("ttnn.softmax", 50, 60), pagetest.At("ttnn.empty", 51)}
	for id := range uint64(30) {
		for _, kind := range []event.Kind{event.Alloc, event.Free} {
			now++
			list = append(list, event.Event{
				TimeNs: now, Kind: kind, PID: 7, BufferID: 10 + id, Allocator: 1, Devices: []int{0, 1}, Region: event.DRAM, BytesPerBank: 100, Banks: 12,
				Reason: event.ReasonExplicit, Stack: stacks[id%3],
			})
		}
	}
	for i := range list {
		s.Apply(&list[i])
	}
	p := New(Options{Of: "in model.ttmem", Snapshot: s.Snapshot()})
	p.Add(s, everyRegion)
	var said struct {
		Operations []struct {
			Line    int
			Buffers int `json:"temporary_buffers"`
			Bytes   int `json:"temporary_bytes"`
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(document.Append(nil, p.Document(), nil), &said)))
	for _, o := range said.Operations {
		want := 0
		if o.Line == 50 {
			want = 20
		}
		qt.Check(t, qt.Equals(o.Buffers, want), qt.Commentf("line %d", o.Line))
		qt.Check(t, qt.Equals(o.Bytes, 2*12*100*want))
	}
	s.RestartOperations()
	temporary, _ := s.Temporary()
	qt.Check(t, qt.HasLen(temporary, 0))
}
