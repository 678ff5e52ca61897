package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/pagetest"
	"ttmem/cmd/ttmem/term"
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
	return writeEvents(t, "marked.jsonl", events)
}

// leaksJSON is what `ttmem leaks --json` prints of a file, and its error.
func leaksJSON(t *testing.T, args ...string) (doc leakDoc, err error) {
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
				qt.Check(t, qt.Equals(row.Name, "ttnn.embedding · model.py:7 Tables.get"))
			}
			qt.Check(t, qt.Equals(left, test.left))
			_, err = leaksJSON(t, append(test.flags, file, "--fail-above", "0")...)
			qt.Check(t, qt.Equals(err, error(term.ExitStatus(leaked))))
		})
	}
	_, err := leaksJSON(t, markedFile(t, 8), "--from", "step", "--to", "step", "--fail-above", "96KiB")
	qt.Check(t, qt.IsNil(err))
}

func TestWhatIsLeftIsShownApart(t *testing.T) {
	o := leaksOptions{dumpOptions: dumpOptions{by: "stack"}, from: "step#1", to: "step"}
	text := leaksText(t, markedFile(t, 8), o, leakRange{from: "step", fromNth: 1, to: "step"}, page.Layout{Width: 80})
	qt.Check(t, qt.Equals(text, `96.0 KiB leaked from "step#1" to "step" (8 intervals, 1.8 s): 8 buffers from 1
call site

      bytes buffers     oldest
   96.0 KiB       8      1.7 s  ttnn.add · model.py:31 Attention.forward
      grew in 8 of 8 intervals between marks, still growing
        run.py:7

Live but stable  2 buffers, 24.0 KiB
  allocated between the marks and still live, but not growing to the last
      bytes buffers     oldest
   24.0 KiB       2      1.6 s  ttnn.embedding · model.py:7 Tables.get
      grew in 2 of 8 intervals between marks, not after the 2nd
        run.py:7
`))
}

func TestLeaksSaysWhichMarkThereIsNot(t *testing.T) {
	file := markedFile(t, 3)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{file, "--from", "step#5"}, `no mark "step#5": there are 4 of that name`},
		{[]string{file, "--to", "step#5"}, `no mark "step#5": there are 4 of that name`},
		{[]string{file, "--from", "other#2"}, `no mark "other#2": there are step`},
		{[]string{file, "--from", "step#3", "--to", "step#2"}, `no mark "step#2" after the mark "step#3"`},
		{[]string{file, "--from", "step#2", "--to", "step#2"}, `no mark "step#2" after the mark "step#2"`},
	} {
		_, err := leaksJSON(t, test.args...)
		qt.Check(t, qt.ErrorMatches(err, test.want), qt.Commentf("%q", test.args))
	}
}
