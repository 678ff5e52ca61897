package recording

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

// readFile reads the events of a file, and its end.
func readFile(t testing.TB, path string) (events []event.Event, checkpoint int, r *FileReader) {
	t.Helper()
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	for {
		var e event.Event
		if err := r.Next(&e); err == io.EOF {
			return events, checkpoint, r
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if e.Kind == event.Checkpoint {
			checkpoint++
		} else {
			events = append(events, e)
		}
	}
}

// names are the files of a folder.
func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func TestAFileIsReadableWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.ttmem")
	events := model(100, newStacks(3))
	f, err := Create(path, FileOptions{})
	qt.Assert(t, qt.IsNil(err))
	got, _, r := readFile(t, path)
	qt.Assert(t, qt.Equals(len(got), 0))
	_, ended := r.End()
	qt.Assert(t, qt.IsFalse(ended))
	for i := range events {
		f.Add(&events[i])
		if i == 49 {
			qt.Assert(t, qt.IsNil(f.Flush()))
		}
	}
	got, _, r = readFile(t, path)
	equal(t, got, events[:50])
	_, ended = r.End()
	qt.Assert(t, qt.IsFalse(ended))
	qt.Assert(t, qt.IsNil(f.Close(End{HasStacks: true, Taken: 4, Incomplete: map[string]uint64{}, IncompletePython: map[string]uint64{}})))
	got, _, r = readFile(t, path)
	equal(t, got, events)
	end, ended := r.End()
	qt.Assert(t, qt.IsTrue(ended))
	qt.Assert(t, qt.Equals(end.Taken, 4))
	qt.Assert(t, qt.DeepEquals(f.Paths(), []string{path}))
	qt.Assert(t, qt.ErrorMatches(f.Flush(), ".*the recording is closed"))
}

func TestWhatIsThereAlready(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.ttmem")
	record := func(o FileOptions, n uint64) error {
		f, err := Create(path, o)
		if err != nil {
			return err
		}
		f.Add(&event.Event{Kind: event.Lost, Count: n})
		return f.Close(End{})
	}
	count := func(path string) uint64 {
		events, _, _ := readFile(t, path)
		return events[0].Count
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(path, nil, 0o600)))
	qt.Assert(t, qt.IsNil(record(FileOptions{}, 1))) // empty
	qt.Assert(t, qt.ErrorMatches(record(FileOptions{}, 2), path+" exists; name another file, or --force replaces it"))
	qt.Assert(t, qt.Equals(count(path), 1))
	qt.Assert(t, qt.IsNil(record(FileOptions{Replace: true}, 2)))
	qt.Assert(t, qt.Equals(count(path), 2))
	qt.Assert(t, qt.Equals(names(t, dir), "run.ttmem"))
	qt.Assert(t, qt.IsNil(record(FileOptions{Replace: true}, 1)))

	again := FileOptions{Rotate: true}
	for n := range uint64(3) {
		qt.Assert(t, qt.IsNil(record(again, n+2)))
	}
	qt.Assert(t, qt.Equals(names(t, dir), "run.ttmem run.ttmem.1 run.ttmem.2 run.ttmem.3"))
	for n := range 4 {
		p := path
		if n > 0 {
			p = numbered(path, n)
		}
		qt.Assert(t, qt.Equals(count(p), uint64(4-n)))
	}
	again.Keep = 3
	qt.Assert(t, qt.IsNil(record(again, 5)))
	qt.Assert(t, qt.Equals(names(t, dir), "run.ttmem run.ttmem.1 run.ttmem.2"))
	qt.Assert(t, qt.Equals(count(path+".2"), 3))

	f, err := Create(path, again)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.ErrorMatches(record(again, 6), path+": another ttmem is writing it; .*"))
	qt.Assert(t, qt.IsNil(f.Close(End{})))

	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("my notes"), 0o600)))
	for _, o := range []FileOptions{again, {Replace: true}} {
		qt.Assert(t, qt.ErrorMatches(record(o, 7), path+" exists and is not a ttmem recording; remove it or name another"))
	}
	path = filepath.Join(dir, "none", "run.ttmem")
	qt.Assert(t, qt.ErrorMatches(record(again, 7), path+": no such file or directory; name a file that can be written"))
	path = dir
	qt.Assert(t, qt.ErrorMatches(record(again, 7), path+" is a directory; name a file in it"))
}

func TestARotationLeavesForeignFilesAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	for _, foreign := range []string{path + ".new", path + ".1", path + ".2"} {
		f, err := Create(path, FileOptions{})
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(f.Close(End{})))
		qt.Assert(t, qt.IsNil(os.WriteFile(foreign, []byte("my notes"), 0o600)))
		_, err = Create(path, FileOptions{Rotate: true, Keep: 2})
		qt.Assert(t, qt.ErrorMatches(err, ".*"+foreign+" is in the way and is not a ttmem recording; move it away.*"))
		content, err := os.ReadFile(foreign)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(string(content), "my notes"))
		qt.Assert(t, qt.IsTrue(IsRecording(path)))
		qt.Assert(t, qt.Equals(names(t, dir), "run "+filepath.Base(foreign)))
		qt.Assert(t, qt.IsNil(os.Remove(foreign)))
		qt.Assert(t, qt.IsNil(os.Remove(path)))
	}
}

// rotated records events in files of 8 KiB, and says how many were flushed.
func rotated(t testing.TB, path string, keep int, events []event.Event, flushed func(n int)) *File {
	t.Helper()
	added := 0
	f, err := Create(path, FileOptions{MaxBytes: 8 << 10, Keep: keep, Checkpoint: counting(events, &added)})
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
		added++
		if i%100 == 99 {
			qt.Assert(t, qt.IsNil(f.Flush()))
			flushed(added)
		}
	}
	return f
}

func TestFilesFollowEachOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	events := model(8000, newStacks(50))
	f := rotated(t, path, 0, events, func(int) {})
	qt.Assert(t, qt.IsNil(f.Close(End{HasStacks: true})))
	paths := f.Paths()
	qt.Assert(t, qt.IsTrue(len(paths) > 4), qt.Commentf("%v", paths))
	qt.Assert(t, qt.Equals(len(strings.Fields(names(t, dir))), len(paths)))

	var all []event.Event
	var first Header
	for i, p := range paths {
		info, err := os.Stat(p)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(info.Size() <= 8<<10), qt.Commentf("%s has %d bytes", p, info.Size()))
		got, checkpoint, r := readFile(t, p)
		h := r.Header()
		qt.Assert(t, qt.Equals(h.Part, i))
		if i == 0 {
			first = h
			qt.Assert(t, qt.Equals(checkpoint, 0))
		} else {
			qt.Assert(t, qt.Equals(checkpoint, 1))
			qt.Assert(t, qt.IsTrue(info.Size() > 4<<10 || i == len(paths)-1))
		}
		qt.Assert(t, qt.Equals(h.Recording, first.Recording))
		end, ended := r.End()
		qt.Assert(t, qt.IsTrue(ended))
		qt.Assert(t, qt.Equals(end.Continued, i < len(paths)-1))

		// each can be read alone: what it begins with is what was before
		if i > 0 {
			r, err := Open(p)
			qt.Assert(t, qt.IsNil(err))
			var e event.Event
			qt.Assert(t, qt.IsNil(r.Next(&e)))
			qt.Assert(t, qt.Equals(checkCheckpoint(t, &e, events), len(all)))
			qt.Assert(t, qt.IsNil(r.Close()))
		}
		all = append(all, got...)
	}
	equal(t, all, events)
}

func TestTheOldestFileIsRemoved(t *testing.T) {
	for keep, want := range map[int]string{1: "run", 2: "run run.1", 3: "run run.1 run.2"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "run")
		events := model(5000, newStacks(50))
		f := rotated(t, path, keep, events, func(int) {})
		qt.Assert(t, qt.IsNil(f.Close(End{})))
		qt.Assert(t, qt.Equals(names(t, dir), want))
		var all []event.Event
		for _, p := range f.Paths() {
			got, _, _ := readFile(t, p)
			all = append(all, got...)
		}
		equal(t, all, events[len(events)-len(all):])
		if keep > 1 {
			qt.Assert(t, qt.Equals(len(f.Paths()), keep))
		}
	}
}

func TestAStreamIsNoFileToBeRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(path, 0o600)))
	_, err := Create(path, FileOptions{MaxBytes: 1 << 20})
	qt.Assert(t, qt.ErrorMatches(err, path+" is not a file: its size cannot be limited; name a file"))
	events := model(100, newStacks(3))
	got := make(chan []event.Event)
	go func() {
		r, err := Open(path)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		events, err := readAll(r.Reader)
		if err != nil {
			t.Error(err)
		}
		got <- events
	}()
	f, err := Create(path, FileOptions{})
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
	}
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	equal(t, <-got, events)
}
