package recording

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

const killedRun = "TTMEM_TEST_KILLED"

// The test kills itself, run once more, anywhere in what writes files of one
// block or a few.
func TestAKilledWriterLosesNothingThatWasFlushed(t *testing.T) {
	events := model(50_000, newStacks(50))
	if path := os.Getenv(killedRun); path != "" {
		rotated(t, path, 0, events, func(n int) { fmt.Println("flushed", n) })
		return
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	rotations := 0
	for range 6 {
		dir := t.TempDir()
		path := filepath.Join(dir, "run")
		run := exec.Command(os.Args[0], "-test.run", "^TestAKilledWriterLosesNothingThatWasFlushed$")
		run.Env = append(os.Environ(), killedRun+"="+path)
		out, err := run.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(run.Start()))
		flushed, killAt := 0, 1+rng.IntN(150)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			_, _ = fmt.Sscanf(lines.Text(), "flushed %d", &flushed)
			if n == killAt {
				qt.Assert(t, qt.IsNil(run.Process.Kill()))
			}
		}
		_ = run.Wait()

		// It may have been killed between two renames: then a number is free, or the
		// current file's name is, and what follows has only its checkpoint.
		parts := make(map[int]string)
		for _, name := range strings.Fields(names(t, dir)) {
			if p := filepath.Join(dir, name); name != "run.new" {
				r, err := Open(p)
				qt.Assert(t, qt.IsNil(err))
				h := r.Header()
				parts[h.Part] = p
				qt.Assert(t, qt.IsNil(r.Close()))
			}
		}
		var all []event.Event
		for i := range len(parts) {
			r, err := Open(parts[i])
			qt.Assert(t, qt.IsNil(err))
			var e event.Event
			for err = r.Next(&e); err == nil; err = r.Next(&e) {
				if e.Kind != event.Checkpoint {
					all = append(all, e)
				}
			}
			var truncated *TruncatedError
			qt.Assert(t, qt.IsTrue(err == io.EOF || errors.As(err, &truncated)), qt.Commentf("%v", err))
			qt.Assert(t, qt.IsNil(r.Close()))
		}
		qt.Assert(t, qt.IsTrue(len(all) >= flushed), qt.Commentf("%d of %d", len(all), flushed))
		qt.Assert(t, qt.IsTrue(len(all) < len(events)), qt.Commentf("it was killed too late"))
		equal(t, all, events[:len(all)])
		rotations += len(parts) - 1
	}
	qt.Assert(t, qt.IsTrue(rotations > 3), qt.Commentf("%d rotations", rotations))
}

// A rotation that is cut short at any of its steps loses nothing: the test makes
// the folder as it is after each step, and records on.
func TestARotationThatIsCutShortLosesNothing(t *testing.T) {
	good := func(n uint64) []byte {
		return write(t, []event.Event{{Kind: event.Lost, Count: n}})
	}
	for step, files := range []map[string]uint64{
		{"run": 3, "run.1": 2, "run.2": 1, "run.new": 4}, // the one that follows is there
		{"run": 3, "run.1": 2, "run.3": 1, "run.new": 4},
		{"run": 3, "run.2": 2, "run.3": 1, "run.new": 4},
		{"run.1": 3, "run.2": 2, "run.3": 1, "run.new": 4},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "run")
		for name, n := range files {
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), good(n), 0o600)))
		}
		f, err := Create(path, FileOptions{Rotate: true})
		qt.Assert(t, qt.IsNil(err))
		f.Add(&event.Event{Kind: event.Lost, Count: 5})
		qt.Assert(t, qt.IsNil(f.Close(End{})))
		seen := map[uint64]bool{}
		for _, name := range strings.Fields(names(t, dir)) {
			if name != "run.new" {
				events, _, _ := readFile(t, filepath.Join(dir, name))
				seen[events[0].Count] = true
			}
		}
		for _, n := range []uint64{1, 2, 3, 5} {
			qt.Assert(t, qt.IsTrue(seen[n]), qt.Commentf("step %d: %d is lost of %s", step, n, names(t, dir)))
		}
	}
}

const limitedRun = "TTMEM_TEST_LIMITED"

// The test runs itself with a limit on the length of files, which the kernel
// keeps as it does a full disk: what has room is written, then comes an error.
func TestAFullDiskLeavesWhatWasWritten(t *testing.T) {
	if path := os.Getenv(limitedRun); path != "" {
		recordUpToALimit(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "run")
	run := exec.Command(os.Args[0], "-test.run", "^TestAFullDiskLeavesWhatWasWritten$", "-test.v")
	run.Env = append(os.Environ(), limitedRun+"="+path)
	out, err := run.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))

	var flushed int
	_, err = fmt.Sscanf(string(out[bytes.Index(out, []byte("flushed ")):]), "flushed %d", &flushed)
	qt.Assert(t, qt.IsNil(err))
	got, _, r := readFile(t, path) // no error: it ends with a block
	qt.Assert(t, qt.IsTrue(flushed > 0))
	equal(t, got, model(5000, newStacks(50))[:flushed])
	_, ended := r.End()
	qt.Assert(t, qt.IsFalse(ended))
}

func recordUpToALimit(t *testing.T, path string) {
	signal.Ignore(syscall.SIGXFSZ)
	f, err := Create(path, FileOptions{})
	qt.Assert(t, qt.IsNil(err))
	limit := unix.Rlimit{Cur: 20_000, Max: 20_000}
	qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)))
	events := model(5000, newStacks(50))
	for i := range events {
		f.Add(&events[i])
		if i%100 != 99 {
			continue
		}
		if err := f.Flush(); err != nil {
			qt.Assert(t, qt.ErrorMatches(err, path+": file too large; everything written so far is intact"))
			qt.Assert(t, qt.Equals(f.Flush(), err))
			f.Add(&events[0])
			qt.Assert(t, qt.Equals(f.Close(End{}), err))
			fmt.Printf("flushed %d\n", i-99)
			return
		}
	}
	t.Fatal("no error at the limit")
}

func TestErrorsOfTheDiskSayWhatHappened(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "run", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err  error
		want string
	}{
		{full, "run: no space left; everything written so far is intact"},
		{&os.PathError{Op: "write", Path: "run", Err: syscall.EIO}, "run: input/output error; everything written so far is intact"},
	} {
		out, err := os.Create(filepath.Join(t.TempDir(), "run"))
		qt.Assert(t, qt.IsNil(err))
		f := &File{path: "run", segment: &segment{f: out, w: &Writer{}}}
		qt.Assert(t, qt.Equals(f.fail(c.err, "").Error(), c.want))
	}
}

func TestAStreamThatBreaksIsSaidOnce(t *testing.T) {
	broken := errors.New("broken pipe")
	out := &breaking{left: 2, err: broken}
	w, err := NewWriter(out, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	w.Add(&event.Event{Kind: event.Lost})
	qt.Assert(t, qt.IsNil(w.Flush()))
	size := w.Size()
	w.Add(&event.Event{Kind: event.Lost})
	qt.Assert(t, qt.ErrorIs(w.Flush(), broken))
	for range 3 {
		w.Add(&event.Event{Kind: event.Lost})
	}
	qt.Assert(t, qt.ErrorIs(w.Close(End{}), broken))
	qt.Assert(t, qt.Equals(w.Size(), size))
	qt.Assert(t, qt.Equals(out.calls, 3))
}

// breaking fails after some writes.
type breaking struct {
	left, calls int
	err         error
}

func (b *breaking) Write(p []byte) (int, error) {
	b.calls++
	if b.left--; b.left < 0 {
		return len(p) / 2, b.err
	}
	return len(p), nil
}
