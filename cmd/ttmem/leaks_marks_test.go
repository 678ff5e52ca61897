package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/gate"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// markedFile is a file of events of a program that has marks "step" between its steps:
// so many. It keeps a result of each, and of the first two a program's table.
func markedFile(t *testing.T, steps int) string {
	t.Helper()
	leak, cache := pagetest.Stack("add", "Attention.forward", 31), pagetest.Stack("embedding", "Tables.get", 7)
	var events []event.Event
	id := uint64(0)
	alloc := func(stack *event.Stack) {
		id++
		events = append(events, pagetest.Buffer(event.Alloc, id, event.DRAM, 0x1000*id, 1024, stack, 0))
	}
	mark := func() { events = append(events, event.Event{Kind: event.Mark, Cause: "step"}) }
	for i := range steps {
		mark()
		alloc(leak)
		if i < 2 {
			alloc(cache)
		}
	}
	mark()
	return writeEvents(t, "marked.ttmem", events)
}

// leaksJSON is what `ttmem leaks --json` prints of a file, and its error.
func leaksJSON(t *testing.T, args ...string) (doc leaksDocument, err error) {
	t.Helper()
	out, createErr := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(createErr))
	defer out.Close()
	defer func(old *os.File) { os.Stdout = old }(os.Stdout)
	os.Stdout = out
	err = execute(append([]string{"leaks", "--json"}, args...)...)
	text, readErr := os.ReadFile(out.Name())
	qt.Assert(t, qt.IsNil(readErr))
	if len(text) > 0 {
		qt.Assert(t, qt.IsNil(json.Unmarshal(text, &doc)))
	}
	return doc, err
}

// TestWhatStoppedGrowingIsLeft: a cache that has filled is no leak where there are marks
// to tell by, and counts for nothing.
func TestWhatStoppedGrowingIsLeft(t *testing.T) {
	const each = 12 << 10
	for _, test := range []struct {
		name         string
		steps        int
		flags        []string
		leaked, left uint64
	}{
		{"several intervals", 8, []string{"--from", "step", "--to", "step"}, 8, 2},
		{"few intervals", 3, []string{"--from", "step", "--to", "step"}, 3, 2},
		{"one interval", 8, []string{"--from", "step#2", "--to", "step#3"}, 2, 0},
		{"few, and it grew in the last", 8, []string{"--from", "step", "--to", "step#3"}, 4, 0},
		{"few", 3, []string{"--from", "step", "--to", "step"}, 3, 2},
		{"from the second", 8, []string{"--from", "step#2"}, 7, 1},
		{"from a mark that is written out", 8, []string{"--from", "mark:step#3"}, 6, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := markedFile(t, test.steps)
			doc, err := leaksJSON(t, append(test.flags, file)...)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(doc.LeakedCount, test.leaked))
			qt.Check(t, qt.Equals(doc.LeakedBytes, test.leaked*each))
			left := uint64(0)
			for _, row := range doc.Left {
				left += row.Count
				qt.Check(t, qt.Equals(row.Name, "model.py:7 Tables.get · ttnn.embedding"))
			}
			qt.Check(t, qt.Equals(left, test.left))
			_, err = leaksJSON(t, append(test.flags, file, "--fail-above", "0")...)
			qt.Check(t, qt.Equals(err, error(term.ExitStatus(gate.Exceeded))))
		})
	}
	_, err := leaksJSON(t, markedFile(t, 8), "--from", "step", "--to", "step", "--fail-above", "96KiB")
	qt.Check(t, qt.IsNil(err))
}

func TestLeaksSaysWhichMarkThereIsNot(t *testing.T) {
	file := markedFile(t, 3)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{file, "--from", "step#5"}, `no mark step#5 in .*: there are 4 of that name`},
		{[]string{file, "--to", "step#5"}, `no mark step#5 in .*: there are 4 of that name`},
		{[]string{file, "--from", "other#2"}, `no mark other#2 in .*: there are step`},
		{[]string{file, "--from", "step#3", "--to", "step#2"}, `--to step#2 must be later than --from step#3`},
		{[]string{file, "--from", "step#2", "--to", "step#2"}, `--to step#2 must be later than --from step#2`},
	} {
		_, err := leaksJSON(t, test.args...)
		qt.Check(t, qt.ErrorMatches(err, test.want), qt.Commentf("%q", test.args))
	}
}

// TestLeaksAwaitsOnlyMarksThatCanCome: with a service, marks in the wrong order are an error as in a
// file. Others may still be set, and leaks says once which one it waits for.
func TestLeaksAwaitsOnlyMarksThatCanCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	events := sharedHost(0)
	for i, name := range []string{"a", "b"} {
		events = append(events, event.Event{Kind: event.Mark, Cause: name, TimeNs: uint64(1000 + i)})
	}
	hub := serveEvents(t, path, events)
	leaks := func(args ...string) (errs string, status int) {
		_, errs, status = runOnStreams(t, false, append([]string{"leaks", "--socket", path}, args...))
		return errs, status
	}
	for _, test := range [][2]string{{"b", "a"}, {"b", "a#1"}, {"b", "b#1"}} { // without --duration
		errs, status := leaks("--from", test[0], "--to", test[1])
		qt.Check(t, qt.Equals(status, 1))
		qt.Check(t, qt.Equals(errs, "ttmem: --to "+test[1]+" must be later than --from "+test[0]+"\n"))
	}
	for _, test := range []struct{ from, to, awaited string }{
		{"c", "a", "c: there are warm, a, b"},
		{"b", "c", "c: there are warm, a, b"},
		{"b", "b", "b: there is 1 of that name"},
		{"b#2", "end", "b#2: there is 1 of that name"},
	} {
		time.AfterFunc(50*time.Millisecond, func() { hub.Apply(&event.Event{Kind: event.Mark, Cause: "later"}) })
		errs, status := leaks("--from", test.from, "--to", test.to, "--duration", "200ms")
		qt.Check(t, qt.Equals(status, 1))
		qt.Check(t, qt.Equals(strings.Count(errs, "waiting for the mark "), 1))
		qt.Check(t, qt.StringContains(errs, "ttmem: waiting for the mark "+test.awaited), qt.Commentf("%s", errs))
	}
	errs, status := leaks("--from", "a", "--duration", "1ms")
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.IsFalse(strings.Contains(errs, "waiting for")), qt.Commentf("%s", errs))
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
	file := writeEvents(t, "steps.ttmem", events)
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
	qt.Check(t, qt.ErrorMatches(err, `no mark none in .*: there are tests/test_a.py::test_0 \(begin\), tests/test_a.py::test_0 \(end\), .*`))
}
