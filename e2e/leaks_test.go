package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// leaksPage is what `ttmem leaks --json` prints.
type leaksPage struct {
	LeakedBytes uint64 `json:"leaked_bytes"`
	Allocated   uint64
	Marks       []struct{ Name string }
	Leaks       []leakRow
	Undecided   []leakRow
	Left        []leakRow
	Kept        []leakRow
	Suppressed  struct{ Stacks, Count, Bytes uint64 }
}

type leakRow struct {
	Name, Verdict, Kind string
	Class               string
	Bytes, Count        uint64
	Growing             bool
	GrowthBytes         []uint64 `json:"growth_bytes"`
	Stack               []event.Frame
}

// leaksOf runs `ttmem leaks` on a program, or, without one, on what the arguments name.
func leaksOf(t *testing.T, dir string, flags []string, args ...string) (page leaksPage, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(ttmem, append([]string{"leaks", "--json"}, flags...)...)
	if len(args) > 0 {
		under := setup(t, "0.81.1", "3.10").Command(context.Background(), rig.Board("n150"), args...)
		cmd.Args = append(append(cmd.Args, "--", under.Path), under.Args[1:]...)
		cmd.Env = testEnviron(under.Env, "n150", dir)
	}
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	printed := lines(out.String()) // by the program, too
	if last := printed[len(printed)-1]; last != "" {
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(last), &page)), qt.Commentf("%s\n%s", out.String(), errs.String()))
	}
	return page, errs.String(), cmd.ProcessState.ExitCode()
}

// leakLine is where the program has the comment "# line: leak".
func leakLine(t *testing.T, name string) (line int) {
	t.Helper()
	text, err := os.ReadFile(program(t, name))
	qt.Assert(t, qt.IsNil(err))
	for i, s := range lines(string(text)) {
		if strings.HasSuffix(s, "# line: leak") {
			line = i + 1
		}
	}
	qt.Assert(t, qt.IsTrue(line > 0))
	return line
}

// TestPlantedLeak: the line that keeps the result of each call is the only leak, over the whole
// run, between marks of the program, and between marks by number.
func TestPlantedLeak(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "leak.ttmem")
	stderr, status := recordRun(t, dir, file, program(t, "leak_planted.py"), "30")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	marked := filepath.Join(dir, "marked.ttmem")
	_, stderr, status = askOf(t, dir, []string{"run", "-o", marked}, program(t, "leak_planted.py"), "30")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	line := leakLine(t, "leak_planted.py")
	isTheLeak := func(t *testing.T, page leaksPage, count uint64) {
		t.Helper()
		qt.Assert(t, qt.HasLen(page.Leaks, 1), qt.Commentf("%+v", page.Leaks))
		leak := page.Leaks[0]
		qt.Check(t, qt.Matches(leak.Name, `leak_planted\.py:`+strconv.Itoa(line)+` .*forward · ttnn\.add`))
		qt.Check(t, qt.IsTrue(leak.Growing))
		qt.Check(t, qt.Equals(leak.Count, count))
		qt.Check(t, qt.Equals(leak.Bytes, count*24<<10)) // 4 tiles of 2 KiB take one page of each of 12 banks
		qt.Check(t, qt.Equals(page.LeakedBytes, leak.Bytes))
	}
	t.Run("without marks", func(t *testing.T) {
		page, stderr, status := leaksOf(t, dir, []string{file})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
		isTheLeak(t, page, 30)
		qt.Check(t, qt.Matches(page.Leaks[0].Verdict, "grew in 8 of 8 intervals of the run, still growing: 30 freed only at the end"))
	})
	t.Run("at marks of the program", func(t *testing.T) {
		page, stderr, status := leaksOf(t, dir, []string{marked, "--from", "step", "--to", "step"})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
		isTheLeak(t, page, 29) // they are after the model's own operations and before what leaks
		qt.Check(t, qt.HasLen(page.Marks, 30))
		for _, bytes := range page.Leaks[0].GrowthBytes {
			qt.Check(t, qt.Equals(bytes, 24<<10), qt.Commentf("%+v\n%s", page, stderr))
		}
	})
	t.Run("between marks by number", func(t *testing.T) {
		page, stderr, status := leaksOf(t, dir, []string{marked, "--from", "step#11", "--to", "step#21"})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
		isTheLeak(t, page, 10)
		qt.Check(t, qt.HasLen(page.Marks, 11))
		qt.Check(t, qt.HasLen(page.Left, 0))
	})
	t.Run("too much", func(t *testing.T) {
		_, stderr, status := leaksOf(t, dir, []string{file, "--fail-above", "719KiB"})
		qt.Check(t, qt.Equals(status, 3))
		qt.Check(t, qt.StringContains(stderr, "720.0 KiB leaked, more than --fail-above 719.0 KiB"))
		_, _, status = leaksOf(t, dir, []string{file, "--fail-above", "720KiB"})
		qt.Check(t, qt.Equals(status, 0))
	})
	t.Run("suppressed", func(t *testing.T) {
		known := filepath.Join(dir, "known.txt")
		qt.Assert(t, qt.IsNil(os.WriteFile(known, []byte("# by design\nleak_planted\\.py:\\d+ .*forward\n"), 0o600)))
		page, _, status := leaksOf(t, dir, []string{file, "--suppress", known, "--fail-above", "0"})
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.HasLen(page.Leaks, 0))
		qt.Check(t, qt.Equals(page.Suppressed.Count, 30))
	})
	t.Run("unknown mark", func(t *testing.T) {
		_, stderr, status := leaksOf(t, dir, []string{file, "--from", "warm"})
		qt.Check(t, qt.Equals(status, 1))
		qt.Check(t, qt.StringContains(stderr, "no mark warm in "+file+": there are step"))
	})
}

// TestCleanPrograms: programs that load, cache, replace or reuse memory have no leaks.
func TestCleanPrograms(t *testing.T) {
	t.Parallel()
	programs := []string{"demo.py", "mix.py", "leak_clean.py model", "leak_clean.py loading", "leak_clean.py once", "leak_clean.py late", "leak_clean.py again", "leak_clean.py dropped"}
	page, stderr, status := leaksOf(t, t.TempDir(), []string{"--fail-above", "0"}, append([]string{program(t, "each.py")}, programs...)...)
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Check(t, qt.HasLen(page.Leaks, 0), qt.Commentf("%+v", page.Leaks))
	qt.Check(t, qt.IsTrue(page.Allocated > 1500), qt.Commentf("%d buffers in all of them", page.Allocated))
}

// TestProgramCacheIsKept: the memory of cached programs grows with each new program, and
// is shown separately.
func TestProgramCacheIsKept(t *testing.T) {
	t.Parallel()
	page, stderr, status := leaksOf(t, t.TempDir(), []string{"--fail-above", "0"}, program(t, "leak_cache.py"))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Check(t, qt.HasLen(page.Leaks, 0), qt.Commentf("%+v", page.Leaks))
	buffers := uint64(0)
	for _, kept := range page.Kept {
		qt.Check(t, qt.Equals(kept.Kind, "program cache"))
		buffers += kept.Count
	}
	qt.Check(t, qt.IsTrue(buffers >= 16), qt.Commentf("%d buffers", buffers))
}

// TestLeaksFailsAsTheCommandDoes: `ttmem leaks -- COMMAND` exits with the status of a command that
// fails.
func TestLeaksFailsAsTheCommandDoes(t *testing.T) {
	cmd := exec.Command(ttmem, "leaks", "--fail-above", "0", "--", "sh", "-c", "exit 5")
	_ = cmd.Run()
	qt.Check(t, qt.Equals(cmd.ProcessState.ExitCode(), 5))
}

// TestLeaksOfTheNewestFile: its checkpoint has the live buffers of older files, and the times at
// which they were allocated.
func TestLeaksOfTheNewestFile(t *testing.T) {
	t.Parallel()
	calls, env := 600, setup(t, "0.81.1", "3.10")
	var dir, file string
	for ; ; calls *= 2 { // until the machine is not so quick that all is in one file
		dir = t.TempDir()
		file = filepath.Join(dir, "leak.ttmem")
		under := env.Command(t.Context(), "n150", program(t, "leak_planted.py"), fmt.Sprint(calls))
		cmd := exec.Command(ttmem, append([]string{"run", "-o", file, "--max-size", "64KiB", "--", under.Path}, under.Args[1:]...)...)
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
}
