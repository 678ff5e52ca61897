package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

const second = 1_000_000_000

// reportRun builds the events of a run, each a tenth of a second after the one
// before.
type reportRun struct {
	state *aggregate.State
	now   uint64
	id    uint64
}

func newReportRun() *reportRun {
	return &reportRun{state: aggregate.New(), now: 1000 * second}
}

func (r *reportRun) apply(e event.Event) {
	r.now += second / 10
	e.TimeNs = r.now
	for implied := r.state.Implied(&e); implied.Next(); {
		r.state.Apply(implied.Event())
	}
	r.state.Apply(&e)
}

func (r *reportRun) start(pid int, command string) {
	r.apply(event.Event{Kind: event.ProcessStart, PID: pid, Comm: "python3", Command: command, Release: "0.81.1"})
}

func (r *reportRun) open(pid int, board string, devices ...int) {
	r.apply(event.Event{
		Kind: event.DeviceOpen, PID: pid, Allocator: 1, Devices: devices, Board: board, Arch: "wormhole_b0",
		Capacities: [event.BankedRegions]event.Capacity{
			event.DRAM:    {Banks: 12, BytesPerBank: 1071857600},
			event.L1:      {Banks: 64, BytesPerBank: 1360544},
			event.L1Small: {Banks: 64, BytesPerBank: 32768},
			event.Trace:   {Banks: 12, BytesPerBank: 835584},
		},
	})
}

// alloc returns the new buffer's id.
func (r *reportRun) alloc(pid int, region event.Region, perBank uint64, banks uint32, devices ...int) uint64 {
	r.id++
	r.apply(event.Event{
		Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.id, Devices: devices, Region: region,
		SizeBytes: perBank * uint64(banks), BytesPerBank: perBank, Banks: banks,
	})
	return r.id
}

func (r *reportRun) free(pid int, id uint64) {
	r.apply(event.Event{Kind: event.Free, PID: pid, BufferID: id, Reason: event.ReasonExplicit})
}

// program compiles a program with one circular buffer.
func (r *reportRun) program(pid int, id, bytes uint64, devices ...int) {
	r.apply(event.Event{
		Kind: event.CBAlloc, PID: pid, ProgramID: id, Devices: devices, Address: 105824, SizeBytes: bytes,
		Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer,
	})
	r.apply(event.Event{Kind: event.KernelLoad, PID: pid, ProgramID: id, Devices: devices, SizeBytes: 40 << 10, BytesPerBank: 11 << 10})
}

func (r *reportRun) close(pid int, devices ...int) {
	r.apply(event.Event{Kind: event.DeviceClose, PID: pid, Allocator: 1, Devices: devices})
}

func (r *reportRun) exit(pid, status int) {
	r.apply(event.Event{Kind: event.ProcessExit, PID: pid, ExitStatus: status})
}

// A model on a mesh that frees all it had.
func cleanRun() *reportRun {
	r := newReportRun()
	mesh := []int{0, 1, 2, 3, 4, 5, 6, 7}
	r.start(4242, "/usr/bin/python3 /srv/models/demo.py --batch 32 --prompts prompts.json")
	r.open(4242, "n300", mesh...)
	weights := r.alloc(4242, event.DRAM, 450<<20, 12, mesh...)
	trace := r.alloc(4242, event.Trace, 600<<10, 12, mesh...)
	r.program(4242, 1, 240<<10, mesh...)
	activation := r.alloc(4242, event.L1, 672<<10, 64, mesh...)
	r.free(4242, activation)
	r.apply(event.Event{Kind: event.CBFree, PID: 4242, ProgramID: 1})
	r.apply(event.Event{Kind: event.KernelUnload, PID: 4242, ProgramID: 1})
	r.free(4242, weights)
	r.free(4242, trace)
	r.close(4242, mesh...)
	r.exit(4242, 0)
	return r
}

// Several processes on several chips, with all that can go wrong.
func badRun() *reportRun {
	r := newReportRun()
	r.start(4242, "python3 -c 'import ttnn\nprint(\x1b[31m1)'")
	r.open(4242, "n150", 0)
	r.alloc(4242, event.DRAM, 1000<<20, 12, 0)
	r.alloc(4242, event.DRAM, 45056, 12, 0)
	r.alloc(4242, event.L1, 1200<<10, 64, 0)
	r.alloc(4242, event.L1Small, 64, 8, 0)
	r.program(4242, 1, 100<<10, 0)
	r.apply(event.Event{
		Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory,
		Message: "TT_FATAL @ bank_manager.cpp:439: !needs_free\n",
	})
	for range 2 {
		r.apply(event.Event{
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
	r.apply(event.Event{
		Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.CB, Reason: event.ReasonStaticClash,
		Message: "Statically allocated dataflow buffers in program 2 clash with L1 buffers on core range [0-0 - 7-3]. L1 buffer allocated at 122880 and static dataflow buffer region ends at 267616",
	})
	r.start(4300, "./build/train --layers 12")
	r.open(4300, "n150", 1, 2)
	r.alloc(4300, event.DRAM, 2<<20, 12, 1, 2)
	r.alloc(4300, event.L1, 4096, 64, 1)
	r.alloc(4300, event.SystemMemory, 1<<20, 1, 2)
	r.close(4242, 0)
	r.exit(4242, 9)
	r.free(4300, 999)
	r.apply(event.Event{Kind: event.Lost, Count: 12, Cause: "ring buffer full"})
	return r
}

func TestReportLooksLikeTheGoldenFile(t *testing.T) {
	lost := cleanRun()
	lost.apply(event.Event{Kind: event.Lost, Count: 12, Cause: "ring buffer full"})
	lost.apply(event.Event{Kind: event.Lost, Count: 1, Cause: "a record could not be decoded"})
	unknown := newReportRun()
	unknown.alloc(4242, event.L1, 4096, 64, 0)
	for _, test := range []struct {
		name    string
		run     *reportRun
		options reportOptions
	}{
		{"clean", cleanRun(), reportOptions{Unicode: true}},
		{"clean_color", cleanRun(), reportOptions{Unicode: true, Color: true}},
		{"clean_ascii", cleanRun(), reportOptions{}},
		{"clean_wide", cleanRun(), reportOptions{Unicode: true, Width: 120}},
		{"clean_narrow", cleanRun(), reportOptions{Unicode: true, Width: 64}},
		{"bad", badRun(), reportOptions{Unicode: true}},
		{"bad_color", badRun(), reportOptions{Unicode: true, Color: true}},
		{"lost", lost, reportOptions{Unicode: true}},
		{"nothing", newReportRun(), reportOptions{Unicode: true}},
		{"unknown_capacity", unknown, reportOptions{Unicode: true}},
		{"shared", sharedRun(), reportOptions{Unicode: true}},
		{"shared_wide", sharedRun(), reportOptions{Width: 120}},
		{"left", leftRun(), reportOptions{Unicode: true}},
		{"left_color", leftRun(), reportOptions{Unicode: true, Color: true}},
		{"left_whole", leftRun(), reportOptions{Unicode: true, Whole: true}},
		{"live", liveRun(), reportOptions{Unicode: true, Live: true}},
		{"live_narrow", liveRun(), reportOptions{Unicode: true, Live: true, Width: 60}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := test.run.report(t, test.options)
			checkGolden(t, "report_"+test.name+".golden", text)
			if !test.options.Whole {
				checkLines(t, text, test.options)
			}
		})
	}
}

// TestAFailureIsToldOnce: what fails at one place for one reason is one entry, which has
// the newest; beyond a few places the newest are told.
func TestAFailureIsToldOnce(t *testing.T) {
	r := newReportRun()
	r.start(4242, "python3 run.py")
	r.open(4242, "n150", 0)
	fail := func(message string, line int) {
		e := event.Event{
			Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory, Message: message,
		}
		if line > 0 {
			e.Stack = binding("empty", "forward", line)
		}
		r.apply(e)
	}
	for range 50 {
		fail("not enough for the first", 1)
		fail("not enough for the second", 2)
		fail("not enough, says nobody", 0)
	}
	text := r.report(t, reportOptions{})
	qt.Check(t, qt.StringContains(text, "150 failed allocations\n"))
	qt.Check(t, qt.StringContains(text, "PID 4242 - 50 times, the last after 14.9 s - L1 - out of memory - chip 0\n    not enough for the first\n"))
	for _, message := range []string{"for the first", "for the second", "says nobody"} {
		qt.Check(t, qt.Equals(strings.Count(text, message), 1))
	}
	fail("not enough, says another", 0)
	text = r.report(t, reportOptions{})
	qt.Check(t, qt.StringContains(text, "151 failed allocations, the newest 3\n"))
	qt.Check(t, qt.Not(qt.StringContains(text, "for the first")))
}

// report is the report of what was applied.
func (r *reportRun) report(t *testing.T, o reportOptions) string {
	t.Helper()
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, r.state.WithHolders(r.state.Snapshot()), o)))
	return b.String()
}

func TestAReportFitsAnyTerminal(t *testing.T) {
	for name, run := range map[string]func() *reportRun{
		"clean": cleanRun, "bad": badRun, "shared": sharedRun, "left": leftRun, "live": liveRun,
	} {
		for _, columns := range []int{60, 61, 62, 66, 68, 69, 70, 71, 72, 79, 80, 81, 88, 89, 90, 100, 120, 200} {
			for _, o := range []reportOptions{{Width: columns}, {Width: columns, Unicode: true, Color: true, Live: true}} {
				checkLines(t, run().report(t, o), o)
				if t.Failed() {
					t.Fatalf("%s at %d columns", name, columns)
				}
			}
		}
	}
}

func TestNothingIsCutWhereThereIsNoTerminal(t *testing.T) {
	name := "Attention.forward_with_a_name_that_is_longer_than_a_line_of_the_report"
	command := "python3 demo.py --batch 32 --prompts prompts.json"
	qt.Check(t, qt.Not(qt.StringContains(leftRun().report(t, reportOptions{}), name)))
	qt.Check(t, qt.StringContains(leftRun().report(t, reportOptions{Whole: true}), "ttnn.add - model.py:32 "+name+"\n"))
	qt.Check(t, qt.Not(qt.StringContains(cleanRun().report(t, reportOptions{}), command)))
	qt.Check(t, qt.StringContains(cleanRun().report(t, reportOptions{Whole: true}), command+"\n"))
	for _, run := range []*reportRun{cleanRun(), badRun(), sharedRun(), leftRun(), liveRun()} {
		qt.Check(t, qt.Not(qt.StringContains(run.report(t, reportOptions{Whole: true}), "~")))
	}
}

// checkGolden compares with a file of testdata; TTMEM_UPDATE_GOLDEN=1 writes it.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("TTMEM_UPDATE_GOLDEN") != "" {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(got), 0o644)))
	}
	want, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(got, string(want)))
}

var colors = regexp.MustCompile("\x1b\\[[0-9;]*m")

// checkLines checks that lines fit, and that they have no more than was allowed.
func checkLines(t *testing.T, report string, o reportOptions) {
	t.Helper()
	bare := report
	if o.Color {
		bare = colors.ReplaceAllString(report, "")
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
	r := newReportRun()
	for pid := range 100 {
		r.start(pid+1, "true")
		r.exit(pid+1, 0)
	}
	r.start(1000, "python3")
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, r.state.Snapshot(), reportOptions{})))
	qt.Check(t, qt.StringContains(b.String(), "and 81 more"))
}

func TestChipsThatDifferAreShownApart(t *testing.T) {
	r := newReportRun()
	r.open(1, "n300", 0, 1, 2, 3, 4)
	r.alloc(1, event.DRAM, 1<<20, 12, 1)
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, r.state.Snapshot(), reportOptions{})))
	qt.Check(t, qt.StringContains(b.String(), "\nchips 0, 2-4 (each) - n300"))
	qt.Check(t, qt.StringContains(b.String(), "\nchip 1 - n300"))
}

func TestABarShowsWhatIsThereAtAll(t *testing.T) {
	p := page.Painter{}
	qt.Check(t, qt.Equals(p.Bar(0, 100, 10), "··········"))
	qt.Check(t, qt.Equals(p.Bar(1, 1<<40, 10), "▏·········"))
	qt.Check(t, qt.Equals(p.Bar(55, 100, 10), "█████▌····"))
	qt.Check(t, qt.Equals(p.Bar(200, 100, 10), "██████████"))
	qt.Check(t, qt.Equals(page.Painter{ASCII: true}.Bar(1, 1<<40, 10), "#........."))
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
