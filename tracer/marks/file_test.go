package marks

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/kernel"
	"ttmem/tracer/tracetest"
)

// takeNamed has a file looked at by its name.
func takeNamed(t *testing.T, c *Placer, path string) {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	c.take(file)
	c.wait()
}

// unplaced looks at files, but has no program that it could place.
func unplaced(t *testing.T, names ...string) (*Placer, *tracetest.Lines) {
	var told tracetest.Lines
	c := New(names, nil, kernel.Uprobes{}, told.Add)
	t.Cleanup(c.Close)
	return c, &told
}

// TestMarksAreOfFunctionsOnly: not of data among the code, of what chooses a function, nor
// of a symbol that may be the end of something.
func TestMarksAreOfFunctionsOnly(t *testing.T) {
	_, second, _ := tracetest.MarkedLibraries(t)
	e, err := symbolize.Open(second)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	offsets, numbers := functionsNamed(e, []string{"table", "work", "chosen", "bare"})
	qt.Check(t, qt.DeepEquals(numbers, []uint64{1}))
	qt.Check(t, qt.DeepEquals(offsets, []uint64{tracetest.MustOffset(t, second, "work")}))
}

// TestFilesAreNotOpenedByTheirNamesAgain: in the name's place there may be a FIFO by then,
// which would never open.
func TestFilesAreNotOpenedByTheirNamesAgain(t *testing.T) {
	lib, _, _ := tracetest.MarkedLibraries(t)
	c, _ := unplaced(t, "wrk")
	takeNamed(t, c, lib)
	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	qt.Assert(t, qt.IsNil(unix.Mkfifo(lib, 0o600)))
	var unfound []error
	tracetest.Within(t, 10*time.Second, "telling what was not found", func() { unfound = c.Unfound() })
	qt.Assert(t, qt.HasLen(unfound, 1))
	qt.Check(t, qt.ErrorMatches(unfound[0], "--mark-at wrk: no native function of that name .*"))
}

// TestAFIFOAmongTheLibraries: what is installed beside a library is opened by name.
func TestAFIFOAmongTheLibraries(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.so")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(fifo, 0o600)))
	c, _ := unplaced(t, "work")
	tracetest.Within(t, 10*time.Second, "preparing", func() { c.Prepare([]string{fifo}) })
}

// TestAnotherContentOfAnInodeIsReadAgain: written in place, or another file that has got
// the number of one that was deleted.
func TestAnotherContentOfAnInodeIsReadAgain(t *testing.T) {
	lib, second, _ := tracetest.MarkedLibraries(t)
	path := filepath.Join(t.TempDir(), "lib.so")
	first, err := os.ReadFile(lib)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, bytes.ReplaceAll(first, []byte("work"), []byte("idle")), 0o600)))
	c, told := unplaced(t, "work")
	takeNamed(t, c, path)
	takeNamed(t, c, path)
	qt.Assert(t, qt.Equals(told.String(), "")) // there is none

	tracetest.Overwrite(t, path, second)
	takeNamed(t, c, path)
	// no probe can be placed, and that is told: work was found
	qt.Check(t, qt.StringContains(told.String(), "--mark-at: calls of work in "+path+" are not seen"))
	said := told.String()
	takeNamed(t, c, path)
	qt.Check(t, qt.Equals(told.String(), said)) // the same content is read once
	qt.Check(t, qt.HasLen(c.files, 1))
}

// TestTtmemItselfIsNotMarked: a command is it until it begins.
func TestTtmemItselfIsNotMarked(t *testing.T) {
	c, told := unplaced(t, "runtime.main")
	takeNamed(t, c, "/proc/self/exe")
	qt.Check(t, qt.HasLen(c.files, 0))
	qt.Check(t, qt.Equals(told.String(), ""))
}
