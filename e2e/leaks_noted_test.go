package e2e

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// recordAgain records the events of a recording once more, with a checkpoint each so many.
func recordAgain(t *testing.T, from, to string, every int) (checkpoints int) {
	t.Helper()
	in, err := recording.Open(from)
	qt.Assert(t, qt.IsNil(err))
	defer in.Close()
	header := in.Header()
	state := aggregate.New()
	growth := aggregate.NewGrowth(aggregate.GrowthOptions{StackID: recording.StackID})
	out, err := recording.Create(to, recording.FileOptions{
		Options:          recording.Options{Header: &header},
		Checkpoint:       func() iter.Seq[*event.Event] { return state.Freeze(nil) },
		CheckpointNote:   growth.Note,
		CheckpointEvents: every,
	})
	qt.Assert(t, qt.IsNil(err))
	var e event.Event
	for n := 1; ; n++ {
		err := in.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		qt.Assert(t, qt.IsNil(err))
		state.Apply(&e)
		growth.Apply(&e)
		out.Add(&e)
		if n%20 == 0 {
			qt.Assert(t, qt.IsNil(out.Flush()))
			time.Sleep(100 * time.Microsecond) // a checkpoint is made meanwhile
		}
	}
	end, _ := in.End()
	qt.Assert(t, qt.IsNil(out.Close(end)))
	again, err := recording.Open(to)
	qt.Assert(t, qt.IsNil(err))
	defer again.Close()
	for _, c := range again.Checkpoints() {
		if again.CheckpointNote(c) != nil {
			checkpoints++
		}
	}
	return checkpoints
}

// TestLeaksFromTheLastCheckpoint: of real programs they are what all events say.
func TestLeaksFromTheLastCheckpoint(t *testing.T) {
	for _, args := range [][]string{
		{"leak_planted.py", "60"}, {"leak_clean.py", "model"}, {"leak_clean.py", "again"}, {"leak_cache.py"}, {"mix.py"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			dir := t.TempDir()
			file, again := filepath.Join(dir, "once.ttmem"), filepath.Join(dir, "again.ttmem")
			stderr, status := recordRun(t, dir, file, append([]string{program(t, args[0])}, args[1:]...)...)
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
			qt.Assert(t, qt.IsTrue(recordAgain(t, file, again, 60) > 0))
			page := func(file string) string {
				out, err := exec.Command(ttmem, "leaks", "--json", file).Output()
				qt.Assert(t, qt.IsNil(err))
				return string(out)
			}
			qt.Check(t, qt.Equals(page(again), page(file)))
		})
	}
}

// TestLeaksOfTheNewestFile: it knows what was in those before.
func TestLeaksOfTheNewestFile(t *testing.T) {
	const calls = 600
	dir := t.TempDir()
	file := filepath.Join(dir, "leak.ttmem")
	under := setup(t, "0.81.1", "3.10").Command(t.Context(), "n150", program(t, "leak_planted.py"), fmt.Sprint(calls))
	cmd := exec.Command(ttmem, append([]string{"record", "-o", file, "--max-size", "64KiB", "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	_, err = os.Stat(file + ".1")
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out)) // there is a file before

	page, stderr, status := leaksOf(t, dir, []string{file})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Assert(t, qt.HasLen(page.Leaks, 1), qt.Commentf("%+v", page.Leaks))
	qt.Check(t, qt.Equals(page.Leaks[0].Count, calls))
	qt.Check(t, qt.Equals(page.Leaks[0].Bytes, calls*24<<10))
	qt.Check(t, qt.Equals(stderr, ""))

	_, stderr, _ = leaksOf(t, dir, []string{file, "--from", "begin"})
	qt.Check(t, qt.StringContains(stderr, file+" goes on from an earlier file"))
}
