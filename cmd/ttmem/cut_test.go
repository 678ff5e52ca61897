package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// TestNoCommandTakesACutRecordingForAnEmptyOne: each command says that the file is cut short, and fails
// if it has no allocation.
func TestNoCommandTakesACutRecordingForAnEmptyOne(t *testing.T) {
	dir := t.TempDir()
	path, cut := filepath.Join(dir, "whole.ttmem"), filepath.Join(dir, "cut.ttmem")
	readStory(t, storyEvents(goldenFolder, "leak")).record(t, path, 200)
	whole, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	read, failed := 0, 0
	for _, n := range []int{0, 1, 60, 100, 300, len(whole) / 8, len(whole) / 4, len(whole) / 2, len(whole) - 100, len(whole) - 1} {
		qt.Assert(t, qt.IsNil(os.WriteFile(cut, whole[:n], 0o644)))
		for _, args := range [][]string{
			{"report"}, {"leaks"}, {"peak"}, {"dump"}, {"oom"}, {"ops"}, {"log", "-n", "1"}, {"map"}, {"top", "--once"}, {"diff", path},
			{"html", "-o", filepath.Join(dir, "cut.html")}, {"export", "--to", "perfetto", "-o", filepath.Join(dir, "cut.perfetto")},
		} {
			stdout, stderr, status := runOnStreams(t, false, append([]string{args[0], cut}, args[1:]...))
			about := qt.Commentf("%d of %d bytes, %v: status %d\n%s%s", n, len(whole), args, status, stdout, stderr)
			qt.Check(t, qt.Matches(stderr, `(?s).*(is empty|cut short|has no end).*`), about)
			qt.Check(t, qt.IsFalse(strings.Contains(stdout, "✓")), about)
			if status != 0 {
				qt.Check(t, qt.Equals(status, 1), about)
				failed++
				continue
			}
			read++
			for _, none := range []string{"no buffer was allocated", "Nothing was allocated", "No device memory was seen"} {
				qt.Check(t, qt.IsFalse(strings.Contains(stdout, none)), about)
			}
		}
	}
	qt.Check(t, qt.IsTrue(read >= 12 && failed >= 12), qt.Commentf("%d commands read a part, %d failed", read, failed))
}

// TestNoCommandTakesAnUnreadableCheckpointForAnEmptyState: each command that begins at a checkpoint says that
// it cannot be read, and fails.
func TestNoCommandTakesAnUnreadableCheckpointForAnEmptyState(t *testing.T) {
	dir := t.TempDir()
	invalid := func() *event.Event {
		return &event.Event{Kind: event.Checkpoint, TimeNs: 999 * pagetest.Second, State: &event.State{Data: []byte{1, 2, 3}}}
	}
	events := readStory(t, storyEvents(goldenFolder, "leak")).events
	began := writeEvents(t, "began.ttmem", append([]event.Event{*invalid()}, events...))
	between := filepath.Join(dir, "between.ttmem")
	f, err := recording.Create(between, recording.FileOptions{
		Checkpoint: func() func() *event.Event { return invalid }, CheckpointEvents: 100,
	})
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
		if i%50 == 49 {
			qt.Assert(t, qt.IsNil(f.Flush()))
			qt.Assert(t, qt.IsNil(f.Settle()))
		}
	}

	qt.Assert(t, qt.IsNil(f.Close(recording.End{})))
	for path, commands := range map[string][][]string{
		began: {
			{"report"}, {"leaks"}, {"peak"}, {"dump"}, {"dump", "-p", "7"}, {"oom"}, {"ops"}, {"log", "-n", "1"}, {"map"}, {"top", "--once"}, {"diff", began},
			{"html", "-o", filepath.Join(dir, "x.html")}, {"export", "--to", "perfetto", "-o", filepath.Join(dir, "x.perfetto")},
			{"export", "--to", "pprof", "-o", filepath.Join(dir, "x.pprof")}, {"export", "--to", "sqlite", "-o", filepath.Join(dir, "x.sqlite")},
		},
		between: {{"dump"}, {"peak"}, {"map"}, {"oom"}, {"diff", between}, {"dump", "--at", "peak"}},
	} {
		for _, args := range commands {
			stdout, stderr, status := runOnStreams(t, false, append([]string{args[0], path}, args[1:]...))
			about := qt.Commentf("%v: status %d\n%s%s", args, status, stdout, stderr)
			qt.Check(t, qt.Equals(status, 1), about)
			qt.Check(t, qt.StringContains(stderr, "has a checkpoint that cannot be read"), about)
		}
	}
}
