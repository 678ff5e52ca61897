package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/record"
	"ttmem/e2e/pagetest"
)

// What a service kept of a failure is shown without naming it, and with the folder.
func TestOOMShowsTheNewestFailureThatWasKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	s, err := newHostService(record.Options{CrashDir: dir})
	qt.Assert(t, qt.IsNil(err))
	for _, e := range pagetest.Failures() {
		s.take(&e)
		s.pause()
	}
	s.end(nil)
	usual := failuresFolder
	failuresFolder = dir
	t.Cleanup(func() { failuresFolder = usual })
	t.Setenv("TTMEM_SOCKET", filepath.Join(t.TempDir(), "none"))

	for _, args := range [][]string{{"oom", dir}, {"oom"}} {
		out, _, status := runOnStreams(t, false, args)
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.StringContains(out, "failure-0-"))
		qt.Check(t, qt.StringContains(out, "model.py:40"))
	}
	empty := t.TempDir()
	qt.Check(t, qt.ErrorMatches(execute("oom", empty), ".* has no recording of a failed allocation: name a folder of --crash-dir, or a file"))
	qt.Check(t, qt.IsNil(os.Remove(empty)))
}
