package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/dump"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// dumpOf is what `ttmem dump` lists of a file.
func dumpOf(t *testing.T, path string, o viewOptions) (*dump.List, error) {
	t.Helper()
	o.source.File = path
	filter, rules, err := o.check(alloc.Regions)
	qt.Assert(t, qt.IsNil(err))
	return o.list(filter, rules)
}

// rowsOf are its rows.
func rowsOf(l *dump.List) (rows []*alloc.Row) {
	for i := range l.All {
		rows = append(rows, l.At(i))
	}
	return rows
}

// turningEvents have most of DRAM and most of L1 at different times, two marks, and two
// allocations that fail.
func turningEvents() []event.Event {
	r := newTrainingRun(100)
	fail := func() { r.add(event.Event{Kind: event.AllocFailed, Region: event.DRAM, Devices: []int{0, 1}}) }
	r.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 12))
	r.mark("step")
	first := r.alloc(event.DRAM, 8192, pagetest.Stack("matmul", "Model.step", 40))
	fail()
	r.free(first)
	r.mark("step")
	r.alloc(event.L1, 2048, pagetest.Stack("add", "Model.step", 41))
	fail()
	r.add(event.Event{Kind: event.ProcessExit})
	return r.events
}

func TestDumpOfAMoment(t *testing.T) {
	path := writeEvents(t, "turning.ttmem", turningEvents())
	for _, test := range []struct {
		at   string
		want []string // what is listed
	}{
		{"end", nil},
		{"step#1", []string{"ttnn.zeros"}},
		{"step", []string{"ttnn.zeros"}},
		{"failure#1", []string{"ttnn.matmul", "ttnn.zeros"}},
		{"failure", []string{"ttnn.add", "ttnn.zeros"}},
		{"peak", []string{"ttnn.add", "ttnn.matmul", "ttnn.zeros"}}, // each region at its own
	} {
		t.Run(test.at, func(t *testing.T) {
			l, err := dumpOf(t, path, viewOptions{at: test.at})
			qt.Assert(t, qt.IsNil(err))
			l.Sort()
			var ops []string
			for _, row := range rowsOf(l) {
				ops = append(ops, row.Name.Op)
				qt.Check(t, qt.IsTrue(row.Age() < 2*pagetest.Second))
			}
			qt.Check(t, qt.DeepEquals(ops, test.want))
		})
	}
	l, err := dumpOf(t, path, viewOptions{at: "peak", regions: []string{"L1"}})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(l.All, 1))
	qt.Check(t, qt.Equals(l.At(0).Name.Op, "ttnn.add"))

	var text strings.Builder
	l, err = dumpOf(t, path, viewOptions{at: "end"})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(l.WriteText(&text, page.Layout{})))
	qt.Check(t, qt.StringContains(text.String(), " --at peak` lists each region"))

	for at, says := range map[string]string{
		"failure#3": "no failure#3 in .*: 2 allocations failed",
		"warm":      "no mark warm in .*: there are step",
	} {
		_, err := dumpOf(t, path, viewOptions{at: at})
		qt.Check(t, qt.ErrorMatches(err, says))
	}
	_, err = dumpOf(t, writeEvents(t, "a.ttmem", newTrainingRun(1).steps(1, 0, 12).events), viewOptions{at: "failure"})
	qt.Check(t, qt.ErrorMatches(err, "no allocation failed in .*"))
	qt.Check(t, qt.ErrorMatches(runDump(&viewOptions{at: "peak"}), "--at is a moment of a recording.*"))
}

// TestBuffersOfOneNameDifferByTheirCallers: the callers tell buffers of one name apart.
func TestBuffersOfOneNameDifferByTheirCallers(t *testing.T) {
	helper := event.Frame{Kind: event.Python, Name: "empty", File: "/home/u/model.py", Line: 5}
	by := func(line int) *event.Stack {
		caller := event.Frame{Kind: event.Python, Name: "load", File: "/home/u/model.py", Line: line}
		return event.StackOf([]event.Frame{helper, caller})
	}
	r := newTrainingRun(100)
	r.alloc(event.DRAM, 4096, by(20))
	r.alloc(event.DRAM, 4096, by(30))
	r.mark("loaded")
	path := writeEvents(t, "helper.ttmem", r.events)
	l, err := dumpOf(t, path, viewOptions{at: "loaded"})
	qt.Assert(t, qt.IsNil(err))
	var text strings.Builder
	qt.Assert(t, qt.IsNil(l.WriteText(&text, page.Layout{})))
	qt.Assert(t, qt.IsNil(mapOf(t, path, viewOptions{}).WriteText(&text, page.Layout{})))
	for _, line := range []string{"20", "30"} {
		qt.Check(t, qt.Equals(strings.Count(text.String(), "model.py:5 empty, from model.py:"+line+" load"), 2), qt.Commentf("%s", text.String()))
	}
	doc := document.Append(nil, l.Document(), nil) // names of fields stay as they are
	qt.Check(t, qt.StringContains(string(doc), `"name":"model.py:5 empty"`))
}
