package peak

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

var (
	heldAt = pagetest.At("ttnn.empty", 10, 20)
	opAt   = pagetest.At("ttnn.tril", 15, 21)
)

// opened is an N150-like device on each of the chips.
func opened(pid int, chips ...int) event.Event {
	e := event.Event{TimeNs: 1e9, Kind: event.DeviceOpen, PID: pid, Allocator: 1, Devices: chips}
	e.Open = new(event.Open)
	e.Open.Capacities[event.DRAM] = event.Capacity{Banks: 1, BytesPerBank: 12 << 20}
	e.Open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: 1 << 17}
	return e
}

// buffered is a buffer in DRAM of so many KiB, as many milliseconds after the begin.
func buffered(ms, id, kib uint64, stack *event.Stack, chips ...int) event.Event {
	return event.Event{
		TimeNs: 1e9 + ms*1e6, Kind: event.Alloc, PID: 7, BufferID: id, Devices: chips, Stack: stack,
		SizeBytes: kib << 10, BytesPerBank: kib << 10, Banks: 1,
	}
}

func freed(ms, id uint64) event.Event {
	return event.Event{TimeNs: 1e9 + ms*1e6, Kind: event.Free, PID: 7, BufferID: id, Reason: event.ReasonExplicit}
}

// placed is a circular buffer of a program on one core.
func placed(ms, program, bytes uint64, stack *event.Stack, chips ...int) event.Event {
	return event.Event{
		TimeNs: 1e9 + ms*1e6, Kind: event.CBAlloc, PID: 7, ProgramID: program, Devices: chips, Stack: stack,
		Region: event.CB, Address: 1000, SizeBytes: bytes, Cores: []event.CoreRange{{}}, StaticKind: event.CircularBuffer,
	}
}

// ran is a run of a program.
func ran(ms, program uint64, stack *event.Stack, chips ...int) event.Event {
	return event.Event{TimeNs: 1e9 + ms*1e6, Kind: event.ProgramRun, PID: 7, ProgramID: program, Devices: chips, Stack: stack}
}

func inL1(e event.Event) event.Event {
	e.Region = event.L1
	return e
}

// model is a peak within an operation, and one of L1, on the chips.
func modelEvents(chips ...int) []event.Event {
	return []event.Event{
		{TimeNs: 1e9, Kind: event.ProcessStart, PID: 7, Comm: "python", Start: &event.Start{Command: "python model.py"}},
		opened(7, chips...),
		buffered(100, 1, 512, heldAt, chips...), buffered(200, 2, 512, heldAt, chips...),
		buffered(300, 3, 256, opAt, chips...), buffered(301, 4, 256, opAt, chips...), freed(302, 3), freed(310, 4),
		inL1(buffered(400, 5, 2, heldAt, chips...)), placed(500, 1, 4096, opAt, chips...), ran(501, 1, opAt, chips...),
		placed(600, 2, 1024, heldAt, chips...), ran(601, 2, heldAt, chips...),
		{TimeNs: 2e9, Kind: event.Lost},
	}
}

func pageOf(t *testing.T, by string, filter alloc.Filter, events ...event.Event) *Page {
	t.Helper()
	peaks := aggregate.New()
	for i := range events {
		peaks.Apply(&events[i])
	}
	return New(peaks, Options{Of: "model.ttmem", Place: "in model.ttmem", By: by, Filter: filter})
}

func (p *Page) text(layout page.Layout, n int) string {
	var b bytes.Buffer
	p.Limit = n
	_ = p.WriteText(&b, layout) // to memory
	return b.String()
}

func TestAPeakPageSaysWhenAndOfWhat(t *testing.T) {
	text := pageOf(t, "stack", alloc.Filter{}, modelEvents(0)...).text(page.Layout{Width: 80}, 10)
	for _, want := range []string{
		"model.ttmem, over 1.000 s",
		"DRAM  chip 0\n peak 1.5 MiB, 13% of 12.0 MiB, at 0.301 s (▲)\n",
		"    1.0 MiB   67%         2  model.py:10 call_10 · ttnn.empty\n                               ← model.py:20 call_20\n",
		"  512.0 KiB   33%         2  model.py:15 call_15 · ttnn.tril\n",
		"L1 per core  chip 0\n peak 6.0 KiB, 5% of 128.0 KiB, at 0.500 s (▲)\n",
		" █ 2.0 KiB of buffers, ▓ 4.0 KiB of the program that ran\n",
		"    4.0 KiB   67%         1  model.py:15 call_15 · ttnn.tril\n",
	} {
		qt.Check(t, qt.StringContains(text, want))
	}
	for _, none := range []string{"Processes", "do not add up", "PID"} {
		qt.Check(t, qt.IsFalse(strings.Contains(text, none)), qt.Commentf("%s", text))
	}
}

// TestAPeakIsAtLeastThatHigh where the library reports no runs.
func TestAPeakIsAtLeastThatHigh(t *testing.T) {
	events := slices.DeleteFunc(modelEvents(0), func(e event.Event) bool { return e.Kind == event.ProgramRun })
	text := pageOf(t, "stack", alloc.Filter{}, events...).text(page.Layout{Width: 80}, 10)
	qt.Check(t, qt.StringContains(text, " peak at least 6.0 KiB, 5% of 128.0 KiB, at 0.500 s (▲)\n"))
}

func TestAPeakPageFitsItsTerminal(t *testing.T) {
	events := modelEvents(0)
	deep := pagetest.At("ttnn.experimental.nlp_create_qkv_heads_decode", 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112)
	events = append(events[:6:6], append([]event.Event{buffered(305, 99, 900, deep, 0)}, events[6:]...)...)
	long := pagetest.At("ttnn::operations::"+strings.Repeat("experimental::", 5)+"create", 10, 20)
	for id := range 32 { // chips that are not alike, of two processes
		events = append(events, opened(8, id), buffered(uint64(700+id), uint64(1000+id), uint64(100+id), long, id))
		events[len(events)-1].PID = 8
	}
	for _, columns := range []int{40, 60, 80, 120, 250} {
		for _, ascii := range []bool{false, true} {
			text := pageOf(t, "stack", alloc.Filter{}, events...).text(page.Layout{Painter: page.Painter{ASCII: ascii}, Width: columns}, 1)
			for line := range strings.Lines(text) {
				qt.Check(t, qt.IsTrue(page.Width(strings.TrimRight(line, "\n")) <= columns), qt.Commentf("%d: %q", columns, line))
				for _, r := range line {
					qt.Assert(t, qt.IsTrue(!ascii || r < 128), qt.Commentf("%q", line))
				}
			}
		}
	}
}

func TestChipsThatAreAlikeAreOne(t *testing.T) {
	var chips []int
	for id := range 32 {
		chips = append(chips, id)
	}
	one, all := pageOf(t, "stack", alloc.Filter{}, modelEvents(0)...), pageOf(t, "stack", alloc.Filter{}, modelEvents(chips...)...)
	layout := page.Layout{Width: 80}
	qt.Check(t, qt.Equals(strings.ReplaceAll(all.text(layout, 10), "chips 0-31 (each)", "chip 0"), one.text(layout, 10)))
}

func TestTheTimelineOfAlikeChipsIsOfAll(t *testing.T) {
	events := append(modelEvents(0, 1), event.Event{TimeNs: 3e9, Kind: event.Lost})
	// each has more for a while, by another amount
	more := events[:4:4]
	more = append(more, buffered(250, 30, 256, heldAt, 0), freed(260, 30), buffered(270, 31, 128, heldAt, 1), freed(280, 31))
	p := pageOf(t, "stack", alloc.Filter{Regions: []event.Region{event.DRAM}}, append(more, events[4:]...)...)
	qt.Assert(t, qt.HasLen(p.regions, 1))
	c := p.regions[0]
	qt.Check(t, qt.DeepEquals(c.ids, []int{0, 1}))
	at := func(ms uint64) memory.Span {
		return c.Timeline.Spans(p.endNs)[c.Timeline.Column(1e9+ms*1e6, p.endNs, 1024)]
	}
	qt.Check(t, qt.Equals(at(255), memory.Span{Min: 1024 << 10, Max: 1280 << 10}))
	qt.Check(t, qt.Equals(at(275), memory.Span{Min: 1024 << 10, Max: 1152 << 10}))
}

func TestChipsThatAreUnlikeFitToo(t *testing.T) {
	events := modelEvents(0)[:1]
	for id := range 32 {
		events = append(events, opened(7, id), buffered(uint64(10+id), uint64(id), uint64(100+id), heldAt, id))
	}
	p := pageOf(t, "stack", alloc.Filter{}, events...)
	text := p.text(page.Layout{Width: 80}, 10)
	qt.Check(t, qt.IsTrue(strings.Count(text, "\n") < 45), qt.Commentf("%s", text))
	qt.Check(t, qt.StringContains(text, "DRAM  chip 31\n peak 131.0 KiB"))
	qt.Check(t, qt.StringContains(text, "and 22 chips more, from 100.0 KiB to 121.0 KiB"))
	chosen := pageOf(t, "stack", alloc.Filter{Devices: []int{3, 4, 5, 6}}, events...).text(page.Layout{Width: 80}, 10)
	qt.Check(t, qt.Equals(strings.Count(chosen, "ttnn.empty"), 4))
}

func TestAPeakBeforeTheBeginningIsReported(t *testing.T) {
	state := aggregate.New()
	handle := state.Apply
	for _, e := range modelEvents(0) {
		handle(&e)
	}
	peaks := aggregate.New()
	peaks.Apply(aggregate.OfProcesses(state.Checkpoint(), []int{7}))
	p := New(peaks, Options{Of: "model.ttmem", By: "stack"})
	text := strings.Join(strings.Fields(p.text(page.Layout{Width: 80}, 10)), " ")
	qt.Check(t, qt.StringContains(text, "DRAM chip 0 Higher peak of 1.5 MiB, 13% of 12.0 MiB, 0.699 s before this recording started; "+
		"no breakdown. Since then: peak 1.0 MiB, 8% of 12.0 MiB, at the beginning"))
	qt.Check(t, qt.IsFalse(strings.Contains(text, "L1 per core chip 0 Its highest")), qt.Commentf("%s", text))
}

// TestAUserHasTheSamePeaksAsRoot, with one row for other users in each list.
func TestAUserHasTheSamePeaksAsRoot(t *testing.T) {
	all := aggregate.New()
	events := modelEvents(0)
	other := func(e event.Event, stack *event.Stack) event.Event {
		e.PID, e.Stack = 8, stack
		return e
	}
	a, b := pagetest.At("ttnn.add", 30, 31), pagetest.At("ttnn.sub", 40, 41)
	start := event.Event{TimeNs: 1e9, Kind: event.ProcessStart, PID: 8, UID: 2000}
	big := placed(550, 9, 9<<10, b, 0)
	events = slices.Concat(events[:2], []event.Event{
		start, other(opened(7, 0), nil), other(buffered(150, 1, 100, nil, 0), a), other(inL1(buffered(160, 2, 1, nil, 0)), a),
	}, events[2:10], []event.Event{other(big, b)}, events[10:])
	for i := range events {
		all.Apply(&events[i])
	}
	mine := aggregate.New()
	mine.Apply(all.Freeze(func(uid int) bool { return uid == 0 })())
	text := func(s *aggregate.State) string {
		text, _, _ := strings.Cut(New(s, Options{Of: "this host", By: "line"}).text(page.Layout{Width: 80}, 10), "\nProcesses")
		return text
	}
	want := text(all)
	for _, row := range [][2]string{
		{"    1.0 KiB    8%         1  model.py:30 call_30\n", "    1.0 KiB    8%            other users\n"},
		{"  100.0 KiB    6%         1  model.py:30 call_30\n", "  100.0 KiB    6%            other users\n"},
		{"    9.0 KiB   75%         1  model.py:40 call_40\n", "    9.0 KiB   75%            other users\n"},
	} {
		qt.Check(t, qt.StringContains(want, row[0]))
		want = strings.Replace(want, row[0], row[1], 1)
	}
	qt.Check(t, qt.Equals(text(mine), want))
}

func TestWhatIsCountedTogether(t *testing.T) {
	before := buffered(50, 9, 64, nil, 0)
	before.BeforeAttach = true
	events := append([]event.Event{opened(7, 0), before}, modelEvents(0)[2:]...)
	for by, want := range map[string][]string{
		"stack":     {"model.py:10 call_10 · ttnn.empty", "model.py:15 call_15 · ttnn.tril", "allocated before ttmem attached"},
		"op":        {"ttnn.empty", "ttnn.tril", "allocated before ttmem attached"},
		"line":      {"model.py:10 call_10", "model.py:15 call_15", "allocated before ttmem attached"},
		"file":      {"/home/someone/a/model.py", "allocated before ttmem attached"},
		"component": {"call_20/call_10", "call_21/call_15", "allocated before ttmem attached"},
		"type":      {"DRAM interleaved"},
		"process":   {"PID 7 "},
		"chip":      {"this chip alone"},
	} {
		p := pageOf(t, by, alloc.Filter{Regions: []event.Region{event.DRAM}}, events...)
		var keys []string
		var sum uint64
		for _, row := range p.rows(p.regions[0].buffers, 0, false) {
			keys = append(keys, row.Text)
			sum += row.Amounts[0].Bytes
		}
		qt.Check(t, qt.DeepEquals(keys, want), qt.Commentf("%s", by))
		qt.Check(t, qt.Equals(sum, p.regions[0].Bytes))
	}
}

func TestEachProcessHasItsOwnPeak(t *testing.T) {
	events := modelEvents(0)
	other := buffered(700, 1, 100, opAt, 0)
	other.PID, other.Comm = 8, "other"
	text := pageOf(t, "stack", alloc.Filter{}, append(events, opened(8, 0), other)...).text(page.Layout{Width: 120}, 10)
	qt.Check(t, qt.StringContains(text, " PID 7 python model.py · DRAM 1.5 MiB at 0.301 s · L1 per core 6.0 KiB at 0.500 s\n"))
	qt.Check(t, qt.StringContains(text, " PID 8 other · DRAM 100.0 KiB at 0.700 s\n"))
	qt.Check(t, qt.StringContains(text, "PID 7 · model.py:10 call_10 · ttnn.empty"))
}

func TestNothingIsSaid(t *testing.T) {
	layout := page.Layout{Width: 80}
	qt.Check(t, qt.Equals(pageOf(t, "stack", alloc.Filter{}, opened(7, 0)).text(layout, 10), "Nothing was allocated in model.ttmem.\n"))
	p := pageOf(t, "stack", alloc.Filter{Regions: []event.Region{event.Trace}}, modelEvents(0)...)
	qt.Check(t, qt.StringContains(p.text(layout, 10), "No matching allocations in model.ttmem"))
}

func TestPeaksAsJSONHaveEverything(t *testing.T) {
	b := document.Append(nil, pageOf(t, "op", alloc.Filter{}, modelEvents(0, 1)...).Document(), nil)
	type row struct {
		Key          string
		Bytes, Count uint64
		Class        string
		Line         int
		Stack        []event.Frame
	}
	var doc struct {
		EndNs uint64 `json:"end_ns"`
		Peaks []struct {
			Devices     []int
			TimeNs      uint64 `json:"time_ns"`
			Bytes       uint64
			StaticBytes uint64 `json:"static_bytes"`
			Timeline    timelineJSON
			Groups      []row `json:"groups"`
			Holders     []row `json:"holders"`
			Programs    []row `json:"programs"`
		} `json:"peaks"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &doc)))
	qt.Assert(t, qt.HasLen(doc.Peaks, 2))
	dram, l1 := doc.Peaks[0], doc.Peaks[1]
	qt.Check(t, qt.DeepEquals(dram.Devices, []int{0, 1}))
	qt.Check(t, qt.Equals(dram.Bytes, 1536<<10))
	qt.Check(t, qt.Equals(dram.TimeNs, 1_301_000_000))
	qt.Check(t, qt.Equals(dram.Holders[0].Line, 10))
	qt.Check(t, qt.Equals(dram.Holders[0].Stack[2].Line, 20))
	qt.Check(t, qt.DeepEquals(dram.Groups, []row{{Key: "ttnn.empty", Bytes: 1 << 20, Count: 2, Class: "tensor"}, {Key: "ttnn.tril", Bytes: 1 << 19, Count: 2, Class: "tensor"}}))
	qt.Check(t, qt.Equals(l1.StaticBytes, 4096))
	qt.Check(t, qt.HasLen(l1.Programs, 1)) // the other came later
	var most uint64
	for _, n := range dram.Timeline.MaxBytes {
		most = max(most, n)
	}
	qt.Check(t, qt.Equals(most, dram.Bytes))
	end := dram.Timeline.BeginNs + uint64(len(dram.Timeline.MaxBytes))*dram.Timeline.StepNs
	qt.Check(t, qt.IsTrue(end > doc.EndNs && end-dram.Timeline.StepNs <= doc.EndNs))
}

func TestTheTimelineGoesOnToTheEnd(t *testing.T) {
	state := aggregate.New()
	for _, e := range []event.Event{opened(7, 0), buffered(1, 1, 64, heldAt, 0)} {
		state.Apply(&e)
	}
	qt.Check(t, qt.Equals(New(state, Options{By: "stack"}).endNs, 1_001_000_000))
	qt.Check(t, qt.Equals(New(state, Options{By: "stack", EndNs: 5e9}).endNs, 5e9)) // nothing happened since
}

func TestTheFirstRiseOfWhatRanAlreadyIsExplained(t *testing.T) {
	found := buffered(200, 1, 512, heldAt, 0)
	found.BeforeAttach = true
	start := event.Event{TimeNs: 100, PID: found.PID, Kind: event.ProcessStart, Start: &event.Start{AttachedLate: true}}
	p := pageOf(t, "stack", alloc.Filter{}, start, found)
	text := p.text(page.Layout{Width: 200}, 10)
	qt.Check(t, qt.StringContains(text, "PID 7 was already running: the first step is its existing memory, 1 buffer."))
	qt.Check(t, qt.Not(qt.StringContains(pageOf(t, "stack", alloc.Filter{}, start, buffered(200, 1, 512, heldAt, 0)).text(page.Layout{Width: 200}, 10), "already running")))
}
