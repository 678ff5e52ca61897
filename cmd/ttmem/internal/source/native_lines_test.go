package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// TestRecordingsAreShownWithNativeLines has one stack recorded, whose frame is of a
// library, and reads it while the library is there, was built anew, and is gone.
func TestRecordingsAreShownWithNativeLines(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++")
	}
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(dir), 0o755))) // for every user
	library := filepath.Join(dir, "lib.so")
	build := func(text string) {
		t.Helper()
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "model.cpp"), []byte(text), 0o644)))
		c := exec.Command("g++", "-g", "-O2", "-fPIC", "-shared", "-Wl,--build-id=sha1", "-o", library, "model.cpp")
		c.Dir = dir
		out, err := c.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	}
	build(`int held;
namespace model {
static inline void keep(int n) { held = n; }
void load(int n) {
  keep(n);
}
}
`)
	e, err := symbolize.Open(library)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	load, ok := e.Lookup("_ZN5model4loadEi")
	qt.Assert(t, qt.IsTrue(ok))
	// the instruction that keep was inlined as
	code, err := e.Text(load.Addr, int(load.Size))
	qt.Assert(t, qt.IsNil(err))
	store := strings.Index(string(code), "\x89\x38") // mov %edi,(%rax)
	qt.Assert(t, qt.IsTrue(store > 0))
	frame := event.Frame{
		Kind: event.Native, Name: "model::load", Symbol: load.Name, Module: "lib.so", Path: library,
		BuildID: e.BuildID(), Address: load.Addr + uint64(store),
	}
	inner := frame
	inner.Name, inner.Symbol, inner.Inlined = "model::keep", "", true
	inner.File, inner.Line = filepath.Join(dir, "model.cpp"), 3
	outer := frame
	outer.File, outer.Line = inner.File, 5

	file := filepath.Join(dir, "model.ttmem")
	read := func() []event.Frame {
		nativeLines = new(lineFinder) // as in another process
		r, err := Open(file)
		qt.Assert(t, qt.IsNil(err))
		defer r.Close()
		var e event.Event
		qt.Assert(t, qt.IsNil(r.Next(&e)))
		return e.Stack.Frames()
	}
	record := func(f event.Frame) {
		out, err := os.Create(file)
		qt.Assert(t, qt.IsNil(err))
		header := recording.NewHeader()
		w, err := recording.NewWriter(out, header)
		qt.Assert(t, qt.IsNil(err))
		w.Add(&event.Event{Kind: event.Alloc, Stack: event.StackOf([]event.Frame{f})})
		qt.Assert(t, qt.IsNil(w.Flush()))
		qt.Assert(t, qt.IsNil(out.Close()))
	}
	record(frame)
	got := read()
	qt.Assert(t, qt.HasLen(got, 2))
	inner.Symbol = got[0].Symbol // GCC gives it none, clang would
	qt.Assert(t, qt.DeepEquals(got, []event.Frame{inner, outer}))

	full := frame
	full.Name = "model::load(int)"
	record(full)
	got = read()
	qt.Assert(t, qt.HasLen(got, 2))
	qt.Assert(t, qt.Equals(got[1].Name, "model::load(int)"))

	// what was recorded with lines is shown with those
	known := frame
	known.File, known.Line = "other.cpp", 7
	record(known)
	qt.Assert(t, qt.DeepEquals(read(), []event.Frame{known}))

	// nobody waits for the holder of a lease, until the kernel ends it and the file can be read
	leased := frame
	leased.Path = filepath.Join(dir, "leased.so")
	text, err := os.ReadFile(library)
	qt.Assert(t, qt.IsNil(err))
	owner, err := os.Create(leased.Path)
	qt.Assert(t, qt.IsNil(err))
	_, err = owner.Write(text)
	qt.Assert(t, qt.IsNil(err))
	_, err = unix.FcntlInt(owner.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	qt.Assert(t, qt.IsNil(err))
	record(leased)
	qt.Check(t, qt.DeepEquals(read(), []event.Frame{leased}))
	owner.Close()
	qt.Check(t, qt.HasLen(read(), 2))

	record(frame)
	build("int held; namespace model { void load(int n) { held = n + 1; } }\n")
	qt.Assert(t, qt.DeepEquals(read(), []event.Frame{frame}))
	qt.Assert(t, qt.IsNil(os.Remove(library)))
	qt.Assert(t, qt.DeepEquals(read(), []event.Frame{frame}))
}

// A file on a file system that never answers costs one wait.
func TestLinesDoNotWaitForever(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	var l lineFinder
	began := time.Now()
	names := l.find(mappedFile{"/mnt/gone/library.so", "ab12"}, func(string) (*os.File, error) {
		<-stuck
		return nil, os.ErrNotExist
	})
	qt.Check(t, qt.IsNil(names))
	qt.Check(t, qt.IsTrue(time.Since(began) >= host.ReadPatience))
	qt.Check(t, qt.Equals(l.open, maxLineFiles), qt.Commentf("another file would be read"))
}

// TestTheTracerReadsNoDWARF: files are its users', and it is root.
func TestTheTracerReadsNoDWARF(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "ttmem/tracer").Output()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsFalse(strings.Contains(string(out), "ttmem/symbolize/lines")))
}
