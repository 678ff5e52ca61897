package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// For real programs the result equals that from all events.
func TestLeaksFromTheLastCheckpoint(t *testing.T) {
	for _, args := range [][]string{
		{"leak_planted.py", "60"}, {"leak_clean.py", "model"}, {"leak_clean.py", "again"}, {"leak_cache.py"}, {"mix.py"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			dir := t.TempDir()
			file, again := filepath.Join(dir, "once.ttmem"), filepath.Join(dir, "again.ttmem")
			stderr, status := recordRun(t, dir, file, append([]string{program(t, args[0])}, args[1:]...)...)
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
			_, noted := recordAgain(t, file, again, 60)
			qt.Assert(t, qt.IsTrue(noted > 0))
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
	calls, env := 600, setup(t, "0.81.1", "3.10")
	var dir, file string
	for ; ; calls *= 2 { // until the machine is not so quick that all is in one file
		dir = t.TempDir()
		file = filepath.Join(dir, "leak.ttmem")
		under := env.Command(t.Context(), "n150", program(t, "leak_planted.py"), fmt.Sprint(calls))
		cmd := exec.Command(ttmem, append([]string{"record", "-o", file, "--max-size", "64KiB", "--", under.Path}, under.Args[1:]...)...)
		cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		if _, err := os.Stat(file + ".1"); err == nil {
			break
		}
		qt.Assert(t, qt.IsTrue(calls < 20000), qt.Commentf("%s", out))
	}

	page, stderr, status := leaksOf(t, dir, []string{file})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Assert(t, qt.HasLen(page.Leaks, 1), qt.Commentf("%+v", page.Leaks))
	qt.Check(t, qt.Equals(page.Leaks[0].Count, uint64(calls)))
	qt.Check(t, qt.Equals(page.Leaks[0].Bytes, uint64(calls)*24<<10))
	qt.Check(t, qt.Equals(stderr, ""))

	_, stderr, _ = leaksOf(t, dir, []string{file, "--from", "begin"})
	qt.Check(t, qt.StringContains(stderr, file+" goes on from an earlier file"))
}
