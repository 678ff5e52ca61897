package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/diff"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// A trainingRun holds weights, grows by a buffer with each step from one line, and
// leaves what another line has in the end.
type trainingRun struct {
	events []event.Event
	id     uint64
	pid    int
}

func newTrainingRun(pid int) *trainingRun {
	r := &trainingRun{pid: pid}
	r.add(event.Event{Kind: event.ProcessStart, Start: &event.Start{Command: "python3 train.py"}})
	r.add(event.Event{Kind: event.DeviceOpen, Allocator: 1, Devices: []int{0, 1}, Open: &event.Open{Board: "n300", Capacities: pagetest.Capacities}})
	return r
}

func (r *trainingRun) add(e event.Event) {
	e.PID = r.pid
	r.events = append(r.events, e)
}

func (r *trainingRun) alloc(region event.Region, perBank uint64, stack *event.Stack) uint64 {
	r.id++
	r.add(pagetest.Buffer(event.Alloc, r.id, region, 0x2000+r.id*0x100, perBank, stack, 0, 1))
	return r.id
}

func (r *trainingRun) free(id uint64) {
	r.add(pagetest.Buffer(event.Free, id, event.DRAM, 0, 0, nil, 0, 1))
}

func (r *trainingRun) mark(name string) { r.add(event.Event{Kind: event.Mark, Cause: name}) }

// steps are so many, each of which leaks so many buffers; the line of the weights is
// another one where the program was edited.
func (r *trainingRun) steps(n, leaks, line int) *trainingRun {
	for range 4 {
		r.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", line))
	}
	for range n {
		temporary := r.alloc(event.DRAM, 8192, pagetest.Stack("matmul", "Model.step", 40))
		for range leaks {
			r.alloc(event.DRAM, 1024, pagetest.Stack("add", "Model.step", 41))
		}
		r.add(event.Event{
			Kind: event.CBAlloc, ProgramID: r.id, Devices: []int{0, 1}, Address: 0x8000, SizeBytes: 2048,
			Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer, Stack: pagetest.Stack("matmul", "Model.step", 40),
		})
		r.free(temporary)
		r.mark("step")
	}
	return r
}

// diffOf compares as a command line asks.
func diffOf(t *testing.T, layout page.Layout, args ...string) (text string, d *diff.Difference) {
	t.Helper()
	var o diffOptions
	c := newDiff()
	// the same flags, of options that can be looked at
	qt.Assert(t, qt.IsNil(c.ParseFlags(args)))
	f := c.Flags()
	get := func(name string) string { return f.Lookup(name).Value.String() }
	o.at, o.by, o.grep = get("at"), get("by"), get("grep")
	o.span = flags.Span{From: get("from"), To: get("to"), Within: get("within")}
	o.regions, _ = f.GetStringSlice("region")
	o.n, _ = f.GetInt("limit")
	a, b, err := o.sides(c, f.Args())
	qt.Assert(t, qt.IsNil(err))
	filter, rules, err := o.check(alloc.Regions)
	qt.Assert(t, qt.IsNil(err))
	_, err = o.read(a, b)
	qt.Assert(t, qt.IsNil(err))
	d = o.compare(a, b, alloc.Namer{Rules: rules, Filter: filter})
	a.Path, b.Path = filepath.Base(a.Path), filepath.Base(b.Path)
	var out strings.Builder
	qt.Assert(t, qt.IsNil(d.WriteText(&out, layout)))
	return out.String(), d
}

func TestTheDifferenceOfTwoRecordings(t *testing.T) {
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(3, 0, 12).events)
	b := writeEvents(t, "b.ttmem", newTrainingRun(200).steps(3, 2, 12).events)
	for _, test := range []struct {
		name   string
		layout page.Layout
		args   []string
	}{
		{"diff_stack", page.Layout{}, []string{a, b}},
		{"diff_narrow", page.Layout{Width: 80}, []string{a, b}},
		{"diff_color", page.Layout{Painter: page.Painter{Color: true}, Width: 120}, []string{b, a}},
		{"diff_op", page.Layout{Painter: page.Painter{ASCII: true}}, []string{a, b, "--by", "op"}},
		{"diff_region", page.Layout{}, []string{a, b, "--by", "region"}},
		{"diff_peak", page.Layout{}, []string{a, b, "--at", "peak"}},
		{"diff_same", page.Layout{}, []string{a, a}},
		{"diff_nothing", page.Layout{}, []string{a, b, "--region", "TRACE"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, _ := diffOf(t, test.layout, test.args...)
			golden.Check(t, test.name+".golden", text)
		})
	}
}

// TestWhatGrewIsFirst: the line that leaks, and nothing else, whatever the processes'
// ids, and where an edit moved lines.
func TestWhatGrewIsFirst(t *testing.T) {
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(3, 0, 12).events)
	b := writeEvents(t, "b.ttmem", newTrainingRun(200).steps(3, 2, 15).events)
	buffers := func(d *diff.Difference) (keys []string) {
		for _, g := range d.Groups {
			if g.Region != event.CB {
				keys = append(keys, g.Text)
			}
		}
		return keys
	}
	const leak = "model.py:41 Model.step · ttnn.add"
	text, d := diffOf(t, page.Layout{}, a, b)
	qt.Check(t, qt.DeepEquals(buffers(d), []string{leak}))
	qt.Check(t, qt.Equals(d.Groups[0].Amounts[1].Bytes-d.Groups[0].Amounts[0].Bytes, 2*6*1024*12))
	qt.Check(t, qt.IsTrue(strings.HasPrefix(text, "Largest change: +144.0 KiB of DRAM, 0 → 6 buffers: "+leak+"\n")), qt.Commentf("%s", text))
	_, d = diffOf(t, page.Layout{}, a, b, "--by", "file")
	qt.Check(t, qt.DeepEquals(buffers(d), []string{"/srv/model.py"}))
}

// TestPeaksAreComparedIfNothingElseDiffers: of runs that free everything, and of runs with the same
// leftovers.
func TestPeaksAreComparedIfNothingElseDiffers(t *testing.T) {
	run := func(leftovers int, result uint64) string {
		r := newTrainingRun(100)
		for range leftovers {
			r.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 12))
		}
		r.free(r.alloc(event.DRAM, result, pagetest.Stack("matmul", "Model.step", 40)))
		return writeEvents(t, "a.ttmem", r.events)
	}
	for leftovers, note := range []string{"Both freed everything", "The unfreed memory is the same in both"} {
		text, d := diffOf(t, page.Layout{}, run(leftovers, 8192), run(leftovers, 12288))
		qt.Check(t, qt.IsTrue(strings.HasPrefix(text, "Largest change: +96.0 KiB of DRAM, 1 buffer: model.py:40 Model.step · ttnn.matmul\n")), qt.Commentf("%s", text))
		qt.Check(t, qt.StringContains(text, note+": these are the peaks."))
		qt.Assert(t, qt.HasLen(d.Groups, 1))
	}
}

// TestADifferenceShowsTwentyRows: the others are counted, and what shrank most comes first among
// what shrank.
func TestADifferenceShowsTwentyRows(t *testing.T) {
	run := func(grows bool) string {
		r := newTrainingRun(100)
		for line := range 12 {
			for _, grown := range []bool{true, false} {
				perBank := uint64(4096)
				if grown == grows {
					perBank += uint64(line+1) << 10
				}
				at := 100 + line
				if grown {
					at += 100
				}
				r.alloc(event.DRAM, perBank, pagetest.Stack("zeros", "Model.__init__", at))
			}
		}
		return writeEvents(t, "a.ttmem", r.events)
	}
	text, d := diffOf(t, page.Layout{}, run(false), run(true), "--at", "end")
	qt.Check(t, qt.Equals(len(d.Groups), 20))
	first := func(line string) int { return strings.Index(text, line+" ") }
	qt.Check(t, qt.IsTrue(0 < first("model.py:211") && first("model.py:211") < first("model.py:202") && first("model.py:202") < first("model.py:111")), qt.Commentf("%s", text))
	qt.Check(t, qt.IsTrue(first("model.py:111") < first("model.py:110")))
	qt.Check(t, qt.StringContains(text, "4 changes smaller: -n 0 lists all"))
}

// TestUnfreedBuffersAreLiveAtTheEnd: the end of a program and closing its device do not
// count as frees.
func TestUnfreedBuffersAreLiveAtTheEnd(t *testing.T) {
	running := newTrainingRun(100).steps(3, 2, 12)
	exited := newTrainingRun(100).steps(3, 2, 12)
	exited.add(event.Event{Kind: event.ProcessExit})
	closed := newTrainingRun(100).steps(3, 2, 12)
	closed.add(event.Event{Kind: event.DeviceClose, Allocator: 1})
	a := writeEvents(t, "a.ttmem", running.events)
	for _, run := range []*trainingRun{exited, closed} {
		_, d := diffOf(t, page.Layout{}, a, writeEvents(t, "b.ttmem", run.events), "--region", "DRAM", "--at", "left")
		qt.Check(t, qt.HasLen(d.Groups, 0))
		qt.Check(t, qt.Equals(d.Same, 2))
	}
}

func TestTheDifferenceOfTwoMarks(t *testing.T) {
	path := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(10, 2, 12).events)
	for name, c := range map[string]struct {
		from, to string
		grown    int64 // buffers
	}{
		"the first and the last":   {"step", "step", 18},
		"the first and the end":    {"step#1", "end", 18},
		"numbered":                 {"step#4", "step#7", 6},
		"backwards":                {"step#7", "step#4", -6},
		"a time":                   {"100ms", "step#1", 2},
		"named like a time":        {"mark:step#2", "step#3", 2},
		"the peak, which is later": {"step#2", "peak", 16},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := diffOf(t, page.Layout{}, path, "--from", c.from, "--to", c.to, "--grep", "ttnn.add", "--region", "DRAM")
			qt.Assert(t, qt.HasLen(d.Groups, 1))
			qt.Check(t, qt.Equals(int64(d.Groups[0].Amounts[1].Count)-int64(d.Groups[0].Amounts[0].Count), c.grown))
			region, bytes := d.Grown()
			if c.grown > 0 {
				qt.Check(t, qt.Equals(region, "DRAM"))
				qt.Check(t, qt.Equals(bytes, c.grown*1024*12*2))
			} else {
				qt.Check(t, qt.Equals(bytes, 0))
			}
		})
	}
}

func TestTheDifferenceAsJSON(t *testing.T) {
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(3, 0, 12).events)
	b := writeEvents(t, "b.ttmem", newTrainingRun(200).steps(3, 2, 12).events)
	_, d := diffOf(t, page.Layout{}, a, b)
	out := document.Append(nil, d.Document(), nil)
	var doc struct {
		V              int
		Groups, Totals []rowJSON
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(out, &doc)))
	qt.Assert(t, qt.HasLen(doc.Groups, 1))
	qt.Check(t, qt.Equals(doc.Groups[0].B, amountJSON{Buffers: 6, Bytes: 2 * 6 * 1024 * 12}))
	qt.Check(t, qt.Equals(doc.Groups[0].A, amountJSON{}))
	qt.Check(t, qt.IsTrue(len(doc.Groups[0].Stack) > 3))
	qt.Check(t, qt.Equals(doc.Totals[0].B, amountJSON{Buffers: 10, Bytes: (4*4096 + 6*1024) * 12}))
	qt.Check(t, qt.Equals(doc.V, 1))
}

func TestTheDifferenceSaysWhatIsWrong(t *testing.T) {
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(2, 0, 12).events)
	unmarked := writeEvents(t, "b.ttmem", newTrainingRun(100).events)
	empty := writeEvents(t, "empty.ttmem", nil)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"nothing":          {nil, "ttmem diff yesterday.ttmem"},
		"three files":      {[]string{a, a, a}, "two files at a time"},
		"one file":         {[]string{a}, "two of its moments with --from and --to"},
		"marks of two":     {[]string{a, a, "--from", "x"}, "--at selects the moment"},
		"to alone":         {[]string{a, "--to", "x"}, "--to without --from"},
		"at of one":        {[]string{a, "--from", "step", "--at", "peak"}, "give --from and --to"},
		"unknown mark":     {[]string{a, "--from", "warm"}, "no mark warm in " + a + ": there are step"},
		"too high":         {[]string{a, "--from", "step#3"}, "there are 2 of that name"},
		"no marks":         {[]string{unmarked, "--from", "warm"}, "ttmem mark NAME"},
		"too late":         {[]string{a, "--from", "1h"}, "ends before 1h0m0s: its last event is at"},
		"before the first": {[]string{a, "--from", "-1s"}, "give one such as 2.5s"},
		"no moment":        {[]string{a, a, "--at", ""}, "--at is empty"},
		"grouping":         {[]string{a, a, "--by", "color"}, "choose stack, op,"},
		"region":           {[]string{a, a, "--region", "SRAM"}, "choose DRAM, L1, CB"},
		"limit":            {[]string{a, a, "-n", "-1"}, "0 lists all"},
		"size":             {[]string{a, a, "--fail-above", "lots"}, "not a size"},
		"no file":          {[]string{a, "/no/such/file"}, "no such file"},
		"socket of two":    {[]string{a, a, "--socket", "/no/socket"}, "diff FILE -p PID"},
		"no service":       {[]string{a, "--socket", "/no/socket", "-p", "1"}, "no ttmem service at /no/socket"},
		"marks and at":     {[]string{a, "--from", "step", "-p", "100", "--at", "peak"}, "give --from and --to"},
		"no events":        {[]string{a, empty}, empty},
	} {
		t.Run(name, func(t *testing.T) {
			err := execute(append([]string{"diff"}, c.args...)...)
			qt.Assert(t, qt.IsNotNil(err))
			qt.Check(t, qt.StringContains(err.Error(), c.says))
			qt.Check(t, qt.IsFalse(strings.Contains(err.Error(), "\n")))
		})
	}
}

func TestTooMuchGrowthFails(t *testing.T) {
	path := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(4, 2, 12).events)
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	run := func(args ...string) error {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		qt.Assert(t, qt.IsNil(err))
		defer null.Close()
		os.Stdout = null
		return execute(append([]string{"diff", path, "--from", "step", "--to", "step"}, args...)...)
	}
	// 6 buffers of 12 KiB on two chips
	qt.Check(t, qt.IsNil(run()))
	qt.Check(t, qt.IsNil(run("--fail-above", "144KiB")))
	qt.Check(t, qt.Equals(run("--fail-above", "143KiB"), error(term.ExitStatus(3))))
	qt.Check(t, qt.Equals(run("--fail-above", "0"), error(term.ExitStatus(3))))
	qt.Check(t, qt.IsNil(run("--fail-above", "0", "--grep", "ttnn.zeros")))
}
