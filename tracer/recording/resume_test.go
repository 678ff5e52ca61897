package recording

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

// recordOver adds events, a flush for every hundred, and calls failed where a flush
// has failed before.
func recordOver(t *testing.T, f *File, events []event.Event, failed func(err error)) {
	t.Helper()
	for i := range events {
		f.Add(&events[i])
		if i%100 == 99 {
			if err := f.Flush(); err != nil {
				failed(err)
			}
		}
	}
}

// empty is a checkpoint.
func empty() func() *event.Event {
	return func() *event.Event { return &event.Event{Kind: event.Checkpoint, State: &event.State{Data: []byte{1}}} }
}

// checkGap checks that the events are in the two files except for a gap, which is reported.
func checkGap(t *testing.T, path string, events []event.Event) {
	t.Helper()
	before, _, _ := readFile(t, path+".1")
	after, checkpoint, r := readFile(t, path)
	qt.Assert(t, qt.Equals(checkpoint, 1))
	qt.Assert(t, qt.Equals(r.Header().Part, 1))
	equal(t, before, events[:len(before)])
	gap := after[0]
	qt.Assert(t, qt.Equals(gap.Kind, event.Lost))
	qt.Assert(t, qt.Equals(gap.Cause, MissedCause))
	equal(t, after[1:], events[len(events)-len(after)+1:])
	qt.Assert(t, qt.Equals(len(before)+int(gap.Count)+len(after)-1, len(events)))
	qt.Assert(t, qt.Equals(gap.TimeNs, events[len(before)+int(gap.Count)-1].TimeNs))
	qt.Assert(t, qt.IsTrue(len(before) > 0 && gap.Count > 0 && len(after) > 1))
}

const resumedRun = "TTMEM_TEST_RESUMED"

// The test runs itself with a limit on the length of files, as for a full disk, which
// it takes away at last.
func TestARecordingIsResumedAfterAnError(t *testing.T) {
	events := model(4000, newStacks(50))
	if path := os.Getenv(resumedRun); path != "" {
		signal.Ignore(syscall.SIGXFSZ)
		limit := unix.Rlimit{Cur: 20_000, Max: 1 << 20}
		qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)))
		f, err := Create(path, FileOptions{Checkpoint: empty})
		qt.Assert(t, qt.IsNil(err))
		failures := 0
		recordOver(t, f, events, func(error) {
			if failures++; failures == 5 {
				limit.Cur = limit.Max
				qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)))
				qt.Assert(t, qt.IsNil(f.Resume()))
			}
		})
		qt.Assert(t, qt.Equals(failures, 5))
		qt.Assert(t, qt.IsNil(f.Close(End{})))
		qt.Assert(t, qt.ErrorMatches(f.Resume(), ".*the recording is closed"))
		return
	}
	path := filepath.Join(t.TempDir(), "run")
	run := exec.Command(os.Args[0], "-test.run", "^TestARecordingIsResumedAfterAnError$")
	run.Env = append(os.Environ(), resumedRun+"="+path)
	out, err := run.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	checkGap(t, path, events)
}

func TestARecordingWaitsForSpace(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a disk that is full needs root: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	path, ballast := filepath.Join(dir, "run"), filepath.Join(dir, "ballast")
	made := 0
	f, err := Create(path, FileOptions{Checkpoint: func() func() *event.Event { made++; return empty() }})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.ErrorIs(os.WriteFile(ballast, make([]byte, 2<<20), 0o600), unix.ENOSPC))
	events := model(4000, newStacks(50))
	failures := 0
	recordOver(t, f, events, func(err error) {
		qt.Assert(t, qt.ErrorMatches(err, path+": no space left; everything written so far is intact"))
		switch failures++; failures {
		case 3:
			qt.Assert(t, qt.ErrorMatches(f.Resume(), ".*no space left.*"))
			qt.Assert(t, qt.Equals(names(t, dir), "ballast run"))
			qt.Assert(t, qt.Equals(made, 0)) // nothing is made that has no room
		case 5:
			qt.Assert(t, qt.IsNil(os.Remove(ballast)))
			qt.Assert(t, qt.IsNil(f.Resume()))
		}
	})
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	checkGap(t, path, events)
}

// Who frees the disk may remove the very file.
func TestARecordingIsResumedWhoseFileIsGone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	f, err := Create(path, FileOptions{Checkpoint: empty})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNotNil(f.fail(syscall.ENOSPC, "")))
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Assert(t, qt.IsNil(f.Resume()))
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	qt.Assert(t, qt.Equals(names(t, dir), "run"))
	_, checkpoint, _ := readFile(t, path)
	qt.Assert(t, qt.Equals(checkpoint, 1))
}

func TestAPrivateRecordingIsItsOwners(t *testing.T) {
	for name, before := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"another": func(path string) error { return os.WriteFile(path, write(t, nil), 0o644) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "run")
		qt.Assert(t, qt.IsNil(before(path)))
		f, err := Create(path, FileOptions{Private: true, Rotate: true, MaxBytes: 1, Checkpoint: empty})
		qt.Assert(t, qt.IsNil(err))
		for range 20 { // files follow each other
			f.Add(&event.Event{Kind: event.Lost, Message: "a long one", Count: 1})
			qt.Assert(t, qt.IsNil(f.Flush()))
		}
		qt.Assert(t, qt.IsNil(f.Close(End{})))
		qt.Assert(t, qt.IsTrue(len(f.Paths()) > 1))
		for _, p := range f.Paths() {
			info, err := os.Stat(p)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(info.Mode(), 0o600), qt.Commentf("%s: %s", name, p))
		}
	}
}

func TestAPrivateRecordingIsNotWrittenToAnothersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, nil, 0o666)))
	if err := os.Chown(path, 4321, 4321); err != nil {
		t.Skipf("another's file needs root: %v", err)
	}
	_, err := Create(path, FileOptions{Private: true})
	qt.Assert(t, qt.ErrorMatches(err, path+": it belongs to another user; .*"))
}
