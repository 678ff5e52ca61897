package web

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// model allocates and frees in DRAM and L1 as a model with many layers does: from 500 call
// stacks, with short lives in L1, whose owners are known, long ones in DRAM, circular buffers and a
// leak.
func model(events int, chips []int) *run {
	r := newRun()
	random := rand.New(rand.NewPCG(1, 2))
	var stacks []*event.Stack
	for i := range 500 {
		stacks = append(stacks, stackOf(python(fmt.Sprintf("op%d", i%40), "/srv/ops.py", 10+i%40), python(fmt.Sprintf("layer%d", i%64), "/srv/layers.py", 100+i), python("forward", "/srv/decoder.py", 60+i%8)))
	}
	r.apply(event.Event{Kind: event.ProcessStart, PID: 7, Comm: "python3", Start: &event.Start{Command: "python3 model.py"}})
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: chips, Mesh: true}
	open.Open = new(event.Open)
	open.Open.Capacities[event.DRAM] = event.Capacity{Banks: 1, BytesPerBank: 32 << 30}
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 1, BytesPerBank: 1 << 20, Base: 1 << 16}
	r.apply(open)
	var live []uint64
	for r.page.Events() < events {
		chips := chips
		if random.IntN(50) == 0 { // a chip that differs from the others
			chips = chips[random.IntN(len(chips)):][:1]
		}
		switch n := random.IntN(20); {
		case n == 0:
			r.alloc(event.DRAM, uint64(1+random.IntN(64))<<14, uint64(random.IntN(1<<20))<<12, stacks[random.IntN(100)], chips...)
			if len(live) > 400 || random.IntN(8) > 0 { // most are freed soon
				live = append(live, r.id)
			}
		case n == 1:
			cores := []event.CoreRange{{X1: 7, Y1: 7}}
			r.apply(event.Event{Kind: event.CBAlloc, PID: 7, ProgramID: uint64(random.IntN(200)), Devices: chips, StaticKind: event.CircularBuffer, Cores: cores, Address: 1 << 16, SizeBytes: 4096, Stack: stacks[400+random.IntN(100)]})
		case n < 11 && len(live) < 500 || len(live) < 50:
			live = append(live, r.alloc(event.L1, uint64(1+random.IntN(4))<<9, 1<<16+uint64(random.IntN(1<<9))<<11, stacks[100+random.IntN(300)], chips...))
			r.apply(event.Event{Kind: event.Owner, PID: 7, BufferID: r.id, Cause: fmt.Sprintf("model.layers[%d].cache[%d]", random.IntN(64), random.IntN(40)), Message: "bf16[32,32] TILE"})
		default:
			i := random.IntN(len(live))
			r.free(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
	}
	return r
}

// openLarge opens the page of a model and selects moments in each view. It returns the processor
// time to open it, and for the slowest selection of each view.
func openLarge(t testing.TB, events, chips int) (opened time.Duration, selected []time.Duration) {
	t.Helper()
	var ids []int
	for id := range chips {
		ids = append(ids, id)
	}
	b := openPage(t, model(events, ids).write(t))
	opened = b.CPU()
	for _, view := range []string{"1", "2", "3", "4", "5", "6", "owners"} {
		if view == "owners" {
			b.Choose("by", "owner")
			view = "2"
		}
		b.Press(view)
		took := time.Duration(0)
		for i := range 3 {
			before := b.CPU()
			b.Eval(fmt.Sprintf(`(() => {
				const { selection, recording } = ttmem;
				Object.assign(selection, { from: recording.last * %[1]d / 6 | 0, to: recording.last * (%[1]d + 2) / 5 | 0 });
				selection.at = selection.to;
				ttmem.update();
				ttmem.timeline.draw();
				return true;
			})()`, i), new(bool))
			b.Settle()
			took = max(took, b.CPU()-before)
		}
		t.Logf("%d events, view %s: %v for a selection", events, view, took)
		selected = append(selected, took)
	}
	b.Screenshot(fmt.Sprintf("large%d", events))
	// however many events there are for a pixel, the peaks are drawn
	var lines []struct{ Most, Drawn float64 }
	b.Eval(`ttmem.recording.lines.map(l => ({ most: l.bytes.reduce((a, b) => Math.max(a, b), 0), drawn: Math.max(...ttmem.timeline.columnsOf(l).map(c => c.high)) }))`, &lines)
	qt.Check(t, qt.IsTrue(len(lines) > 0))
	for _, l := range lines {
		qt.Check(t, qt.Equals(l.Drawn, l.Most))
	}
	b.CheckQuiet()
	return opened, selected
}

// TestLargePages have all peaks, and what a selection costs grows no faster than the number of
// events. `make bench` measures it with a million events.
func TestLargePages(t *testing.T) {
	if testing.Short() {
		t.Skip("40,000 events")
	}
	t.Run("chips", func(t *testing.T) { openLarge(t, 5_000, 32) })
	t.Run("events", func(t *testing.T) {
		const events = 40_000
		openedFew, few := openLarge(t, events/8, 1)
		openedAll, all := openLarge(t, events, 1)
		few, all = append(few, openedFew), append(all, openedAll)
		t.Logf("%v for an eighth of the events, %v for all", few, all)
		for i := range all {
			qt.Check(t, qt.IsTrue(all[i] < 24*max(few[i], 20*time.Millisecond)), qt.Commentf("%v and %v", few[i], all[i]))
		}
	})
}

// BenchmarkLargePages is part of `make bench`.
func BenchmarkLargePages(b *testing.B) {
	for _, size := range []struct{ events, chips int }{{20_000, 32}, {1_000_000, 1}} {
		b.Run(fmt.Sprintf("%d_on_%d", size.events, size.chips), func(b *testing.B) {
			for b.Loop() {
				opened, selected := openLarge(b, size.events, size.chips)
				b.ReportMetric(opened.Seconds()*1000, "open-ms")
				b.ReportMetric(slices.Max(selected).Seconds()*1000, "selection-ms")
			}
		})
	}
}

// manySites allocates at different call sites, and frees most of it.
func manySites(n int) *run {
	r := newRun()
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}}
	open.Open = new(event.Open)
	open.Open.Capacities[event.DRAM] = event.Capacity{Banks: 1, BytesPerBank: 1 << 40}
	r.apply(open)
	for i := range n {
		op := native("tt::tt_metal::BufferImpl::create", fmt.Sprintf("ttnn::op%d", i%50))
		id := r.alloc(event.DRAM, uint64(1+i%97)<<10, uint64(i)<<17, stackOf(append(op, python(fmt.Sprintf("f%d", i), "/srv/ops.py", 1+i%500), python(fmt.Sprintf("layer%d", i%64), "/srv/layers.py", 1+i%640))...), 0)
		if i%4 > 0 {
			r.free(id)
		}
	}
	return r
}

// openManySites opens the page of a recording with that many call sites and changes it in all ways. It
// returns the processor time of each step.
func openManySites(t testing.TB, n int) (steps []time.Duration) {
	t.Helper()
	b := openPage(t, manySites(n).write(t))
	steps = append(steps, b.CPU())
	var areas struct{ Names []string }
	b.Eval("ttmem.timeline.areas()", &areas)
	qt.Assert(t, qt.HasLen(areas.Names, 13))
	qt.Check(t, qt.StringContains(areas.Names[12], " other call sites"))
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"zoom", func() { b.clickBox("<module> (model.py:1)") }},
		{"all frames", func() { b.Toggle("all") }},
		{"the whole recording", func() { b.Eval("(document.getElementById('whole').click(), true)", new(bool)); b.Settle() }},
		{"its peak", func() { b.Choose("amount", "peak") }},
		{"search", func() { b.Press("/"); b.Write("op7") }},
		{"inverted", func() { b.Choose("layout", "inverted") }},
		{"table", func() { b.Choose("layout", "table") }},
		{"areas", func() { b.Eval("(ttmem.timeline.zoomTo({ begin: 1, end: 3 }), true)", new(bool)); b.Settle() }},
	} {
		before := b.CPU()
		step.do()
		steps = append(steps, b.CPU()-before)
		t.Logf("%d call sites, %s: %v", n, step.name, steps[len(steps)-1])
	}
	b.CheckQuiet()
	return steps
}

// What a step of the page costs grows no faster than the number of call sites.
func TestManyCallSites(t *testing.T) {
	if testing.Short() {
		t.Skip("16,000 call sites")
	}
	const sites = 16_000
	few, all := openManySites(t, sites/8), openManySites(t, sites)
	for i := range all {
		qt.Check(t, qt.IsTrue(all[i] < 24*max(few[i], 20*time.Millisecond)), qt.Commentf("%v and %v", few[i], all[i]))
	}
}

// BenchmarkManyCallSites is part of `make bench`.
func BenchmarkManyCallSites(b *testing.B) {
	for b.Loop() {
		steps := openManySites(b, 100_000)
		b.ReportMetric(steps[0].Seconds()*1000, "open-ms")
		b.ReportMetric(slices.Max(steps[1:]).Seconds()*1000, "step-ms")
	}
}
