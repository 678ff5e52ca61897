package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/pagetest"
	"ttmem/tracer/event"
)

// TestLeaksFitTheTerminal: whatever things are called, no line is wider.
func TestLeaksFitTheTerminal(t *testing.T) {
	long := strings.Repeat("model::Attention<bfloat16, tt::Layout::TILE>::", 4) + "forward_with_cache"
	python := func(line int, name string) event.Frame {
		return event.Frame{Kind: event.Python, Name: name, File: "/code/models/" + strings.Repeat("deep/", 9) + "a_file_with_a_long_name.py", Line: line}
	}
	stackOf := func(line int, operation string) *event.Stack {
		return event.StackOf([]event.Frame{
			{Kind: event.Native, Name: operation}, {Kind: event.Native, Name: "nanobind::detail::func_create<ttnn.scaled_dot_product_attention>::{lambda#1}"},
			python(line, long), python(line+1, "main"), python(line+2, "<module>"),
		})
	}
	leak, temporary, cached := stackOf(10, long), stackOf(20, "f"), stackOf(30, "ttnn::device_operation::detail::create_and_cache_mesh_workload")
	weight := event.StackOf([]event.Frame{python(40, "load")})
	var events []event.Event
	id := uint64(0)
	alloc := func(stack *event.Stack) event.Event {
		id++
		e := pagetest.Buffer(event.Alloc, id, event.L1, 0x1000*id, 1<<40, stack, 0, 1, 2, 3, 5, 7)
		events = append(events, e)
		return e
	}
	for i := range 40 {
		if i%4 == 0 {
			events = append(events, event.Event{Kind: event.Mark, Cause: "the first mark of the model " + strings.Repeat("x", 60)})
		}
		alloc(leak)
		if i%5 == 0 {
			alloc(cached)
		}
		if i < 10 {
			alloc(weight)
		}
		free := alloc(temporary)
		free.Kind, free.Reason, free.Stack = event.Free, event.ReasonExplicit, nil
		events = append(events, free)
	}
	file := writeEvents(t, strings.Repeat("long", 20)+".jsonl", events)
	for _, columns := range []int{40, 60, 80} {
		for _, test := range []struct {
			by      string
			between leakRange
		}{{"stack", leakRange{}}, {"stack", leakRange{all: true}}, {"file", leakRange{}}, {"op", leakRange{}}, {"chip", leakRange{}}} {
			o := leaksOptions{suppress: "/code/" + strings.Repeat("known", 20), watchedNs: 3e9}
			o.by = test.by
			text := leaksText(t, file, o, test.between, page.Layout{Width: columns})
			qt.Check(t, qt.StringContains(text, " leaked"))
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				qt.Check(t, qt.IsTrue(page.Width(line) <= columns), qt.Commentf("%d of %d columns: %s", page.Width(line), columns, line))
			}
		}
	}
}

// TestTooLittleToTell: who watched next to nothing has not seen that nothing leaks.
func TestTooLittleToTell(t *testing.T) {
	stack := pagetest.Stack("add", "Attention.forward", 31)
	of := func(buffers int, watchedNs uint64) string {
		var events []event.Event
		for id := range uint64(buffers) {
			events = append(events, pagetest.Buffer(event.Alloc, id, event.DRAM, 0x1000*id, 1024, stack, 0),
				pagetest.Buffer(event.Free, id, event.DRAM, 0x1000*id, 1024, nil, 0))
		}
		events = append(events, event.Event{Kind: event.Lost, Cause: "x"})
		o := leaksOptions{watchedNs: watchedNs}
		o.by = "stack"
		return leaksText(t, writeEvents(t, "some.jsonl", events), o, leakRange{}, page.Layout{})
	}
	for _, test := range []struct {
		buffers   int
		watchedNs uint64
		want      string
	}{
		{0, 1e9, "Not enough allocations to judge, watched for 1.0 s: no buffer was allocated.\n"},
		{1, 0, "Not enough allocations to judge: 1 buffer was allocated.\n"},
		{15, 2e9, "Not enough allocations to judge, watched for 2.0 s: 15 buffers were allocated.\n"},
		{16, 130e9, "No leaks, watched for 2 min 10 s: nothing grew to the end.\n"},
		{16, 0, "No leaks: nothing grew to the end.\n"},
	} {
		qt.Check(t, qt.Equals(of(test.buffers, test.watchedNs), test.want))
	}
}

// TestMarksOfStepsDecideNothing: unless they are named.
func TestMarksOfStepsDecideNothing(t *testing.T) {
	leak := pagetest.Stack("add", "Attention.forward", 31)
	var events []event.Event
	mark := func(name string) { events = append(events, event.Event{Kind: event.Mark, Cause: name}) }
	for i := range 20 {
		if i%5 == 0 {
			mark(fmt.Sprintf("tests/test_a.py::test_%d (begin)", i))
		}
		events = append(events, pagetest.Buffer(event.Alloc, uint64(i), event.DRAM, 0x1000*uint64(i), 1024, leak, 0))
		if i%5 == 4 {
			mark(fmt.Sprintf("tests/test_a.py::test_%d (end)", i-4))
		}
	}
	file := writeEvents(t, "steps.jsonl", events)
	doc, err := leaksJSON(t, file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(doc.Marks, 0))
	qt.Check(t, qt.Equals(doc.StepMarks, 8))
	qt.Check(t, qt.Equals(doc.Allocated, 20))
	qt.Check(t, qt.HasLen(doc.Leaks, 0)) // next to nothing else happens
	qt.Check(t, qt.Equals(doc.Steady.Count, 20))
	doc, err = leaksJSON(t, file, "--from", "tests/test_a.py::test_5 (begin)", "--to", "tests/test_a.py::test_5 (end)")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(doc.Marks, 2))
	qt.Check(t, qt.Equals(doc.StepMarks, 0))
	qt.Check(t, qt.Equals(doc.LeakedCount, 5))
	_, err = leaksJSON(t, file, "--from", "none")
	qt.Check(t, qt.ErrorMatches(err, `no mark "none": there are tests/test_a.py::test_0 \(begin\), tests/test_a.py::test_0 \(end\), .*`))
}
