package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
)

func TestFlagsOfRecordingsAreCheckedEarly(t *testing.T) {
	for args, want := range map[string]string{
		"-o f":                           "",
		"-o f --max-size 64KiB --keep 2": "",
		"-o -":                           "a recording is binary: name a file; /dev/stdout is standard output",
		"-o f --max-size 63KiB":          "--max-size: give 64KiB or more, .*",
		"-o f --max-size 0":              "--max-size: give 64KiB or more, .*",
		"-o f --keep 2":                  "--keep needs --max-size: give both",
		"-o f --keep -1":                 "--keep -1: must not be negative; 0 keeps all",
		"-o f --no-record":               "--no-record writes no recording: leave out -o, --max-size and --keep",
		"--no-record --max-size 64KiB":   "--no-record writes no recording: .*",
		"-o - --no-stacks --full-stacks": "--full-stacks needs call stacks: leave out --no-stacks", // one at a time
	} {
		err := checkFlags("run", strings.Fields(args)...)
		if want == "" {
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s", args))
		} else {
			qt.Check(t, qt.ErrorMatches(err, want), qt.Commentf("%s", args))
		}
	}
}

// recorded records events until there are as many files.
func recorded(t *testing.T, o record.Options, files int) {
	t.Helper()
	r, err := record.New(o, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	oldest := o.Path
	if files > 1 {
		oldest += fmt.Sprintf(".%d", files-1)
	}
	for i := uint64(0); i < 1<<20; i++ {
		if _, err := os.Stat(oldest); err == nil && i > 100 {
			break
		}
		r.Add(&event.Event{Kind: event.Alloc, PID: 1, TimeNs: i * 1e6, BufferID: i, Object: rand.Uint64(), Address: rand.Uint64()})
		if r.Full() {
			qt.Assert(t, qt.IsNil(r.Flush()))
		}
	}
	qt.Assert(t, qt.IsNil(r.Close(&memory.Snapshot{})))
}

// The commands that run ends with exist, and fit a terminal.
func TestNextCommandsCanBeTyped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	r, err := record.New(record.Options{Path: path}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	for failures, first := range []string{"leaks", "oom"} {
		list := r.Next(&memory.Snapshot{FailureCount: uint64(failures)})
		qt.Check(t, qt.HasLen(list, 3))
		for i, one := range list {
			words := strings.Fields(one[0])
			c, _, err := newRoot().Find(words[:1])
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(c.Name(), words[0]))
			qt.Check(t, qt.IsTrue(i > 0 || words[0] == first), qt.Commentf("%v", list))
			qt.Check(t, qt.IsTrue(len("  ttmem leaks ttmem-story_fragments-22910.ttmem  # "+one[1]) <= 80), qt.Commentf("%v", one))
		}
	}
}
