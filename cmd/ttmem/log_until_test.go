package main

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestALogReadsNoFurtherThanUntil: events after --to are not read, except for those that
// come late.
func TestALogReadsNoFurtherThanUntil(t *testing.T) {
	begin := uint64(1000 * pagetest.Second)
	mark := func(name string, after time.Duration) event.Event {
		return event.Event{Kind: event.Mark, Cause: name, TimeNs: begin + uint64(after)}
	}
	path := writeEvents(t, "long.ttmem", []event.Event{
		mark("first", 0), mark("second", time.Second), mark("later", 1500*time.Millisecond),
		mark("late", 900*time.Millisecond), // of a thread that was stopped
		mark("past", 3*time.Second),
	})
	whole, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	whole[len(whole)-1] ^= 0xff // of the end mark, which is behind the events
	qt.Assert(t, qt.IsNil(os.WriteFile(path, whole, 0o644)))

	out, l := logOf(t, path, logOptions{viewOptions: viewOptions{span: flags.Span{To: "1s"}}}, page.Layout{})
	for name, listed := range map[string]bool{"first": true, "second": true, "later": false, "late": true, "past": false} {
		qt.Check(t, qt.Equals(strings.Contains(out, name+"\n"), listed), qt.Commentf("%s in\n%s", name, out))
	}

	// the damage behind is met by who reads on, and by nobody else
	for until, damaged := range map[uint64]bool{uint64(time.Second): false, math.MaxUint64: true} {
		l.Filter.Times = memory.Intervals{{ToNs: until}}
		w, err := (&logOptions{viewOptions: viewOptions{source: source.Options{File: path}}}).watch(l)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(w.Failed, damaged), qt.Commentf("until %d", until))
	}
}

// TestAnotherProcessIsNamed: the error for a process that is not in a file names
// those that are.
func TestAnotherProcessIsNamed(t *testing.T) {
	path := writeEvents(t, "run.ttmem", newTrainingRun(100).steps(2, 1, 12).events)
	for _, args := range [][]string{
		{"dump", path, "-p", "7"}, {"dump", path, "-p", "7", "--at", "peak"}, {"map", path, "-p", "7"}, {"oom", path, "-p", "7"},
		{"log", path, "-p", "7"}, {"leaks", path, "-p", "7"}, {"peak", path, "-p", "7"}, {"top", path, "--once", "-p", "7"}, {"map", path, "-p", "100", "-p", "7"},
		{"diff", path, path, "-p", "7"},
	} {
		qt.Check(t, qt.StringContains(commandSays(t, args...).Error(), "-p 7: no such process in "+path), qt.Commentf("%v", args))
	}
}
