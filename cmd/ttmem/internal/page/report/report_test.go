package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// A model on a mesh that frees all it had.
func cleanRun() *pagetest.Run {
	r := pagetest.NewRun()
	mesh := []int{0, 1, 2, 3, 4, 5, 6, 7}
	r.Start(4242, "/usr/bin/python3 /srv/models/demo.py --batch 32 --prompts prompts.json")
	r.Open(4242, "n300", mesh...)
	weights := r.Alloc(4242, event.DRAM, 450<<20, 12, mesh...)
	trace := r.Alloc(4242, event.Trace, 600<<10, 12, mesh...)
	r.Program(4242, 1, 240<<10, mesh...)
	activation := r.Alloc(4242, event.L1, 672<<10, 64, mesh...)
	r.Free(4242, activation)
	r.Apply(event.Event{Kind: event.CBFree, PID: 4242, ProgramID: 1})
	r.Apply(event.Event{Kind: event.KernelUnload, PID: 4242, ProgramID: 1})
	r.Free(4242, weights)
	r.Free(4242, trace)
	r.Close(4242, mesh...)
	r.Exit(4242, 0)
	return r
}

// Several processes on several chips, with all that can go wrong.
func badRun() *pagetest.Run {
	r := pagetest.NewRun()
	r.Start(4242, "python3 -c 'import ttnn\nprint(\x1b[31m1)'")
	r.Open(4242, "n150", 0)
	r.Alloc(4242, event.DRAM, 1000<<20, 12, 0)
	r.Alloc(4242, event.DRAM, 45056, 12, 0)
	r.Alloc(4242, event.L1, 1200<<10, 64, 0)
	r.Alloc(4242, event.L1Small, 64, 8, 0)
	r.Program(4242, 1, 100<<10, 0)
	r.Apply(event.Event{
		Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory,
		Message: "TT_FATAL @ bank_manager.cpp:439: !needs_free\n",
	})
	for range 2 {
		r.Apply(event.Event{
			Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory,
			Stack: event.StackOf([]event.Frame{
				{Kind: event.Native, Name: "tt::tt_metal::Buffer::allocate_impl", Module: "libtt_metal.so"},
				{Kind: event.Python, Name: "__call__", File: "/venv/lib/python3.12/site-packages/ttnn/decorators.py", Line: 1245},
				{Kind: event.Python, Name: "Attention.forward", File: "/srv/model.py", Line: 123},
				{Kind: event.Native, Name: "nanobind::detail::nb_func_vectorcall_complex", Module: "_ttnn.so"},
				{Kind: event.Python, Name: "run\x1b[31m", File: "/srv/run.py", Line: 7},
			}),
			Message: "\nOut of Memory: Not enough space to allocate 33554432 B L1 buffer across 64 banks, where each bank needs to store 524288 B, but bank size is 1393312 B (allocated: 688128 B, free: 705184 B, largest free block: 49824 B).\nbacktrace:\n --- 0x7f",
		})
	}
	r.Apply(event.Event{
		Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.CB, Reason: event.ReasonStaticClash,
		Message: "Statically allocated dataflow buffers in program 2 clash with L1 buffers on core range [0-0 - 7-3]. L1 buffer allocated at 122880 and static dataflow buffer region ends at 267616",
	})
	r.Start(4300, "./build/train --layers 12")
	r.Open(4300, "n150", 1, 2)
	r.Alloc(4300, event.DRAM, 2<<20, 12, 1, 2)
	r.Alloc(4300, event.L1, 4096, 64, 1)
	r.Alloc(4300, event.SystemMemory, 1<<20, 1, 2)
	r.Close(4242, 0)
	r.Exit(4242, 9)
	r.Free(4300, 999)
	r.Apply(event.Event{Kind: event.Lost, Count: 12, Cause: "ring buffer full"})
	return r
}

func TestReportMatchesTheGoldenFile(t *testing.T) {
	lost := cleanRun()
	lost.Apply(event.Event{Kind: event.Lost, Count: 12, Cause: "ring buffer full"})
	lost.Apply(event.Event{Kind: event.Lost, Count: 1, Cause: "a record could not be decoded"})
	unknown := pagetest.NewRun()
	unknown.Alloc(4242, event.L1, 4096, 64, 0)
	for _, test := range []struct {
		name    string
		run     *pagetest.Run
		options options
	}{
		{"clean", cleanRun(), options{Unicode: true}},
		{"clean_color", cleanRun(), options{Unicode: true, Color: true}},
		{"clean_ascii", cleanRun(), options{}},
		{"clean_wide", cleanRun(), options{Unicode: true, Width: 120}},
		{"clean_narrow", cleanRun(), options{Unicode: true, Width: 64}},
		{"bad", badRun(), options{Unicode: true}},
		{"bad_color", badRun(), options{Unicode: true, Color: true}},
		{"lost", lost, options{Unicode: true}},
		{"nothing", pagetest.NewRun(), options{Unicode: true}},
		{"unknown_capacity", unknown, options{Unicode: true}},
		{"shared", sharedRun(), options{Unicode: true}},
		{"shared_wide", sharedRun(), options{Width: 120}},
		{"left", leftRun(), options{Unicode: true}},
		{"left_color", leftRun(), options{Unicode: true, Color: true}},
		{"left_whole", leftRun(), options{Unicode: true, Whole: true}},
		{"live", liveRun(), options{Unicode: true, Options: Options{Live: true}}},
		{"live_narrow", liveRun(), options{Unicode: true, Options: Options{Live: true}, Width: 60}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := reportText(t, test.run, test.options)
			golden.Check(t, "report_"+test.name+".golden", text)
			if !test.options.Whole {
				checkLines(t, text, test.options)
			}
		})
	}
}

// TestAFailureIsReportedOnce: failures of one call site for one reason are one entry, which
// shows the newest. Of many call sites the newest are listed.
func TestAFailureIsReportedOnce(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(4242, "python3 run.py")
	r.Open(4242, "n150", 0)
	fail := func(message string, line int) {
		e := event.Event{
			Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory, Message: message,
		}
		if line > 0 {
			e.Stack = pagetest.Stack("empty", "forward", line)
		}
		r.Apply(e)
	}
	for range 50 {
		fail("not enough for the first", 1)
		fail("not enough for the second", 2)
		fail("not enough, says nobody", 0)
	}
	text := reportText(t, r, options{})
	qt.Check(t, qt.StringContains(text, "150 allocations failed\n"))
	qt.Check(t, qt.StringContains(text, "  model.py:1 forward - ttnn.empty < run.py:7\n    L1: not enough for the first (50 times)\n"))
	for _, message := range []string{"for the first", "for the second", "says nobody"} {
		qt.Check(t, qt.Equals(strings.Count(text, message), 1))
	}
	fail("not enough, says another", 0)
	text = reportText(t, r, options{})
	qt.Check(t, qt.StringContains(text, "151 allocations failed, the newest 3\n"))
	qt.Check(t, qt.Not(qt.StringContains(text, "for the first")))
}

// options are those of a report and of its layout, which has 80 columns if nothing else is
// said.
type options struct {
	Options
	Width                 int
	Whole, Unicode, Color bool
}

func (o options) layout() page.Layout {
	l := page.Layout{Painter: page.Painter{Color: o.Color, ASCII: !o.Unicode}, Width: cmp.Or(o.Width, 80)}
	if o.Whole {
		l.Width = 0
	}
	return l
}

// reportText is the report of a run.
func reportText(t *testing.T, r *pagetest.Run, o options) string {
	t.Helper()
	var b strings.Builder
	o.State = r.State
	qt.Assert(t, qt.IsNil(write(&b, r.State.Snapshot(), o.layout(), o.Options)))
	return b.String()
}

// ascii is a layout of 80 columns.
var ascii = page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}

func TestAReportFitsAnyTerminal(t *testing.T) {
	for name, run := range map[string]func() *pagetest.Run{
		"clean": cleanRun, "bad": badRun, "shared": sharedRun, "left": leftRun, "live": liveRun,
	} {
		for _, columns := range []int{60, 61, 62, 66, 68, 69, 70, 71, 72, 79, 80, 81, 88, 89, 90, 100, 120, 200} {
			for _, o := range []options{{Width: columns}, {Width: columns, Unicode: true, Color: true, Options: Options{Live: true}}} {
				checkLines(t, reportText(t, run(), o), o)
				if t.Failed() {
					t.Fatalf("%s at %d columns", name, columns)
				}
			}
		}
	}
}

// TestAReportOfACrowdIsShort: each part has a bounded number of lines.
func TestAReportOfACrowdIsShort(t *testing.T) {
	run := crowdedRun()
	snap := run.State.Snapshot()
	snap.Stacks = &memory.Stacks{Incomplete: make(map[string]uint64), IncompletePython: make(map[string]uint64)}
	for i := range 12 {
		snap.Stacks.Incomplete[fmt.Sprintf("cause %d of a call stack that ends early, in a file that has no unwind rows", i)] = 1
	}
	for _, live := range []bool{false, true} {
		for _, columns := range []int{80, 200} {
			var b strings.Builder
			o := Options{Live: live, Own: true, State: run.State, Older: "model.ttmem.1"}
			qt.Assert(t, qt.IsNil(write(&b, snap, page.Layout{Width: columns}, o)))
			for _, part := range []string{"120 allocations failed, the newest 3", "model.py:4 weights", "L1: Not enough space", "DRAM ", "L1 per core", "Processes", "more, with --json"} {
				qt.Check(t, qt.StringContains(b.String(), part))
			}
		}
	}
}

func TestNothingIsCutWhereThereIsNoTerminal(t *testing.T) {
	name := "Attention.forward_with_a_name_that_is_longer_than_a_line_of_the_report"
	command := "python3 demo.py --batch 32 --prompts prompts.json"
	qt.Check(t, qt.Not(qt.StringContains(reportText(t, leftRun(), options{}), name)))
	qt.Check(t, qt.StringContains(reportText(t, leftRun(), options{Whole: true}), "model.py:32 "+name+" - ttnn.add\n"))
	qt.Check(t, qt.Not(qt.StringContains(reportText(t, cleanRun(), options{}), command)))
	qt.Check(t, qt.StringContains(reportText(t, cleanRun(), options{Whole: true}), command+"\n"))
	for _, run := range []*pagetest.Run{cleanRun(), badRun(), sharedRun(), leftRun(), liveRun()} {
		qt.Check(t, qt.Not(qt.StringContains(reportText(t, run, options{Whole: true}), "~")))
	}
}

// checkLines checks that lines fit, and that they have no more than was allowed.
func checkLines(t *testing.T, report string, o options) {
	t.Helper()
	bare := report
	if o.Color {
		bare = pagetest.Colors.ReplaceAllString(report, "")
	}
	qt.Check(t, qt.IsFalse(strings.Contains(bare, "\x1b")))
	limit := o.Width
	if limit == 0 {
		limit = 80
	}
	for line := range strings.Lines(bare) {
		line = strings.TrimSuffix(line, "\n")
		qt.Check(t, qt.IsTrue(page.Width(line) <= limit), qt.Commentf("%d columns: %s", page.Width(line), line))
		qt.Check(t, qt.Equals(strings.TrimRight(line, " "), line))
		for _, r := range line {
			qt.Check(t, qt.IsTrue(o.Unicode || r < 128), qt.Commentf("%q", r))
		}
	}
}

func TestManyProcessesAreCutShort(t *testing.T) {
	r := pagetest.NewRun()
	for pid := range 100 {
		r.Start(pid+1, "true")
		r.Exit(pid+1, 0)
	}
	r.Start(1000, "python3")
	var b strings.Builder
	qt.Assert(t, qt.IsNil(write(&b, r.State.Snapshot(), ascii, Options{State: aggregate.New()})))
	qt.Check(t, qt.StringContains(b.String(), "and 93 more"))
}

func TestChipsThatDifferAreShownApart(t *testing.T) {
	r := pagetest.NewRun()
	r.Open(1, "n300", 0, 1, 2, 3, 4)
	r.Alloc(1, event.DRAM, 1<<20, 12, 1)
	text := reportText(t, r, options{})
	qt.Check(t, qt.StringContains(text, "Peak of each region, on the chip where it is highest - n300 - wormhole_b0\n"))
	qt.Check(t, qt.StringContains(text, "12.0 MiB of 12.0 GiB, 12.0 MiB at the end\n   chip 1; chips 0, 2-4 (each) 0 B\n"))
	r.Alloc(1, event.DRAM, 1<<19, 12, 2)
	text = reportText(t, r, options{})
	qt.Check(t, qt.StringContains(text, "\n   chip 1; others 0 B to 6.0 MiB\n"))
}

func TestABarShowsWhatIsThereAtAll(t *testing.T) {
	p := page.Painter{}
	qt.Check(t, qt.Equals(p.DrawBar(page.Bar{Part: 0, Whole: 100}, 10), "··········"))
	qt.Check(t, qt.Equals(p.DrawBar(page.Bar{Part: 1, Whole: 1 << 40}, 10), "▏·········"))
	qt.Check(t, qt.Equals(p.DrawBar(page.Bar{Part: 55, Whole: 100}, 10), "█████▌····"))
	qt.Check(t, qt.Equals(p.DrawBar(page.Bar{Part: 200, Whole: 100}, 10), "██████████"))
	qt.Check(t, qt.Equals(page.Painter{ASCII: true}.DrawBar(page.Bar{Part: 1, Whole: 1 << 40}, 10), "#........."))
	for _, test := range []struct {
		base, top, whole uint64
		want             page.Gap
	}{
		{0, 0, 100, page.Gap{Base: 0, Free: 10, Top: 0}},
		{1, 1, 1000, page.Gap{Base: 1, Free: 8, Top: 1}},
		{500, 499, 1000, page.Gap{Base: 5, Free: 1, Top: 4}},
		{999, 1, 1000, page.Gap{Base: 9, Free: 0, Top: 1}},
		{600, 600, 1000, page.Gap{Base: 6, Free: 0, Top: 4}},
		{5, 5, 0, page.Gap{Base: 0, Free: 10, Top: 0}},
	} {
		got := page.NewGap(test.base, test.top, test.whole, 10)
		qt.Check(t, qt.Equals(got.Base+got.Free+got.Top, 10))
		qt.Check(t, qt.Equals(got, test.want), qt.Commentf("%+v", test))
	}
}

// write writes the report of a snapshot.
func write(w io.Writer, s *memory.Snapshot, layout page.Layout, o Options) error {
	return (&Page{s, o}).WriteText(w, layout)
}
