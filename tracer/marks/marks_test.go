package marks

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// takeNamed lets the placer read a file by its name.
func takeNamed(t *testing.T, c *Placer, path string) {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	c.take(file, path)
}

// unplaced reads files, but has no program to place.
func unplaced(t *testing.T, names ...string) (*Placer, *tracetest.Lines) {
	var warnings tracetest.Lines
	c := New(names, nil, kernel.Uprobes{}, new(host.Proc), warnings.Add)
	t.Cleanup(c.Close)
	return c, &warnings
}

// Data in the code, resolvers of indirect functions and symbols at the end of a function
// are not marked.
func TestOnlyFunctionsAreMarked(t *testing.T) {
	_, second, _ := tracetest.MarkedLibraries(t)
	e, err := symbolize.Open(second)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	offsets, numbers := functionsNamed(e, []string{"table", "work", "chosen", "bare"})
	qt.Check(t, qt.DeepEquals(numbers, []uint64{1}))
	qt.Check(t, qt.DeepEquals(offsets, []uint64{tracetest.MustOffset(t, second, "work")}))
}

// A file is not opened again by name: by then the name may be a FIFO, which would block.
func TestFilesAreNotReopenedByName(t *testing.T) {
	lib, _, _ := tracetest.MarkedLibraries(t)
	c, _ := unplaced(t, "wrk")
	takeNamed(t, c, lib)
	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	qt.Assert(t, qt.IsNil(unix.Mkfifo(lib, 0o600)))
	var unfound []error
	tracetest.Within(t, time.Minute, "listing functions that were not found", func() { unfound = c.Unfound() })
	qt.Assert(t, qt.HasLen(unfound, 1))
	qt.Check(t, qt.ErrorMatches(unfound[0], "--mark-at wrk: no native function of that name .*"))
}

// The files beside a library are opened by name.
func TestAFIFOAmongTheLibraries(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.so")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(fifo, 0o600)))
	c, _ := unplaced(t, "work")
	tracetest.Within(t, time.Minute, "preparing", func() { c.Prepare([]string{fifo}) })
}

// The inode was written in place, or its number was reused by another file.
func TestChangedInodeIsReadAgain(t *testing.T) {
	lib, second, _ := tracetest.MarkedLibraries(t)
	path := filepath.Join(t.TempDir(), "lib.so")
	first, err := os.ReadFile(lib)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, bytes.ReplaceAll(first, []byte("work"), []byte("idle")), 0o600)))
	c, warnings := unplaced(t, "work")
	takeNamed(t, c, path)
	takeNamed(t, c, path)
	qt.Assert(t, qt.Equals(warnings.String(), "")) // there is none

	tracetest.Overwrite(t, path, second)
	takeNamed(t, c, path)
	// the warning shows that work was found: its probe cannot be placed
	qt.Check(t, qt.StringContains(warnings.String(), "calls of work (--mark-at) in "+path+" are not seen"))
	before := warnings.String()
	takeNamed(t, c, path)
	qt.Check(t, qt.Equals(warnings.String(), before)) // the same content is read once
	qt.Check(t, qt.Equals(c.files.Len(), 1))
}

// ttmem's own program is not marked: a command is ttmem until it starts.
func TestTtmemItselfIsNotMarked(t *testing.T) {
	c, warnings := unplaced(t, "runtime.main")
	takeNamed(t, c, "/proc/self/exe")
	qt.Check(t, qt.Equals(c.files.Len(), 0))
	qt.Check(t, qt.Equals(warnings.String(), ""))
}

// TestAFileIsMappedAtTheEnd: a file that was opened for a mapping before the end of tracing, and is taken
// after it, gets no probes.
func TestAFileIsMappedAtTheEnd(t *testing.T) {
	lib, _, _ := tracetest.MarkedLibraries(t)
	c, warnings := unplaced(t, "work")
	c.Close()
	takeNamed(t, c, lib)
	qt.Check(t, qt.Equals(c.files.Len(), 0))
	qt.Check(t, qt.Equals(warnings.String(), ""))
}
