package main

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// TestADifferenceMatchesMovedLines: what an edit moved is the same, and its change is at the
// new line.
func TestADifferenceMatchesMovedLines(t *testing.T) {
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(3, 0, 12).events)
	moved := writeEvents(t, "moved.ttmem", newTrainingRun(200).steps(3, 2, 15).events)
	text, d := diffOf(t, page.Layout{}, a, moved)
	qt.Check(t, qt.Equals(d.Moved, 1))
	qt.Check(t, qt.HasLen(d.Groups, 1))
	qt.Check(t, qt.StringContains(text, "2 are the same in both, 1 at another line"))
	for _, flags := range [][]string{{"--by", "op", a, moved}, {a, a}} {
		text, d := diffOf(t, page.Layout{}, flags...)
		qt.Check(t, qt.Equals(d.Moved, 0))
		qt.Check(t, qt.Not(qt.StringContains(text, "another line")))
	}

	grown := newTrainingRun(200).steps(3, 0, 15)
	grown.alloc(event.DRAM, 4096, grown.events[2].Stack) // one of the weights
	text, d = diffOf(t, page.Layout{}, a, writeEvents(t, "grown.ttmem", grown.events))
	qt.Assert(t, qt.HasLen(d.Groups, 1))
	qt.Check(t, qt.Equals(d.Groups[0].ALine, 12))
	qt.Check(t, qt.StringContains(text, "4 → 5  model.py:15 Model.__init__ · ttnn.zeros (line 12 in A)"))
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
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(3, 0, 12).events)
	for _, files := range [][]string{{a, writeEvents(t, "b.ttmem", early.events)}, {writeEvents(t, "c.ttmem", early.events), a}} {
		for _, by := range []string{"stack", "op"} {
			text, d := diffOf(t, page.Layout{}, append(files, "--by", by)...)
			qt.Assert(t, qt.HasLen(d.Groups, 1), qt.Commentf("%s", text))
			qt.Check(t, qt.StringContains(d.Groups[0].Text, "ttnn.add"))
		}
	}
}
