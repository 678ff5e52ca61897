package main

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// TestADifferenceTellsOfAnEdit: what is in both but for its lines is told of.
func TestADifferenceTellsOfAnEdit(t *testing.T) {
	a := writeEvents(t, "a.jsonl", newTrainingRun(100).steps(3, 0, 12).events)
	b := writeEvents(t, "b.jsonl", newTrainingRun(200).steps(3, 2, 15).events)
	_, d := diffOf(t, page.Layout{}, a, b)
	qt.Check(t, qt.Equals(d.Moved, 1))
	for _, flags := range [][]string{{"--ignore-lines", a, b}, {"--by", "op", a, b}, {a, a}} {
		text, d := diffOf(t, page.Layout{}, flags...)
		qt.Check(t, qt.Equals(d.Moved, 0))
		qt.Check(t, qt.Not(qt.StringContains(text, "--ignore-lines")))
	}
}

// TestADifferenceKnowsStacksThatEndEarly: the first of a process may lack their native
// frames, and with them the operation, in one run and not in another.
func TestADifferenceKnowsStacksThatEndEarly(t *testing.T) {
	early := newTrainingRun(200).steps(3, 2, 12)
	for i := range early.events[:5] {
		if stack := early.events[i].Stack; stack != nil {
			early.events[i].Stack = event.StackOf(stack.Frames()[3:])
		}
	}
	a := writeEvents(t, "a.jsonl", newTrainingRun(100).steps(3, 0, 12).events)
	for _, files := range [][]string{{a, writeEvents(t, "b.jsonl", early.events)}, {writeEvents(t, "c.jsonl", early.events), a}} {
		for _, by := range []string{"stack", "op"} {
			text, d := diffOf(t, page.Layout{}, append(files, "--by", by)...)
			qt.Assert(t, qt.HasLen(d.Groups, 1), qt.Commentf("%s", text))
			qt.Check(t, qt.StringContains(d.Groups[0].Key, "ttnn.add"))
		}
	}
}
