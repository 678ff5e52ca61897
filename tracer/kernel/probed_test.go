package kernel

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
)

// What was written before the lease is noticed, and a writer after it waits until the probes are
// removed.
func TestProbedFileIsProtected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "library")
	write := func(text string) { qt.Check(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o600))) }
	open := func() ProbedFile {
		file, err := os.Open(path)
		qt.Assert(t, qt.IsNil(err))
		f := ProbedFile{File: file}
		f.Info, err = file.Stat()
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(f.Remove)
		return f
	}
	reads := 0
	protect := func(f *ProbedFile) (unprotected error) {
		unprotected, err := f.Protect(func() error { reads++; return nil })
		qt.Assert(t, qt.IsNil(err))
		return unprotected
	}
	write("first")
	f := open()
	write("the second")
	qt.Check(t, qt.IsNil(protect(&f)))
	qt.Check(t, qt.Equals(reads, 1), qt.Commentf("it is read again"))
	f.Remove()

	f = open()
	qt.Check(t, qt.IsNil(protect(&f)))
	qt.Check(t, qt.Equals(reads, 1))
	f.Probes = io.NopCloser(nil)
	qt.Check(t, qt.IsFalse(f.Overwritten()))
	written := make(chan struct{})
	go func() {
		defer close(written)
		write("the third one")
	}()
	qt.Check(t, qt.IsTrue(tracetest.Eventually(time.Minute, f.Overwritten)))
	select {
	case <-written:
		t.Error("the writer did not wait")
	default:
	}
	f.Remove()
	<-written

	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	defer writer.Close()
	f = open()
	qt.Check(t, qt.ErrorIs(protect(&f), unix.EAGAIN))
}
