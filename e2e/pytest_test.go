package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// The pytest plugin, installed by pip from the tree, fails the tests that leave device memory or
// use too much of it, names the line, and lets the others pass.
func TestPytestPlugin(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	dir := t.TempDir()
	under := env.Command(context.Background(), "n150")
	plugin, err := filepath.Abs("../python/ttmem")
	qt.Assert(t, qt.IsNil(err))
	// pip builds inside the source folder
	source := filepath.Join(dir, "source")
	qt.Assert(t, qt.IsNil(os.CopyFS(source, os.DirFS(plugin))))
	packages := filepath.Join(dir, "packages") // not a site folder: pytest must find it anyway
	// without pandas, whose numpy is not ttnn's
	pip, err := rig.PythonWith(t.Context(), "3.10", t.Output(), rig.Notebook(rig.Pandas["3.10"])...)
	qt.Assert(t, qt.IsNil(err))
	out, err := exec.Command(pip, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--target", packages, "--no-deps", source).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	pytestFolder, err := env.Pytest(t.Context())
	qt.Assert(t, qt.IsNil(err))

	pytest := func(args ...string) (string, int) {
		cmd := exec.Command(under.Path, append([]string{"-m", "pytest", "-p", "no:cacheprovider", "--ttmem-command", ttmem}, args...)...)
		cmd.Dir = filepath.Dir(program(t, "test_limits.py"))
		cmd.Env = append(testEnviron(under.Env, "n150", dir), "PYTHONPATH="+packages+":"+pytestFolder, "PYTHONDONTWRITEBYTECODE=1", "GITHUB_ACTIONS=") // in which there are annotations, too
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if exit := (*exec.ExitError)(nil); err != nil {
			qt.Assert(t, qt.ErrorAs(err, &exit))
			return string(out), exit.ExitCode()
		}
		return string(out), 0
	}

	text, status := pytest("--ttmem", "-v", "test_limits.py")
	qt.Check(t, qt.Equals(status, 1))
	for name, want := range map[string]bool{
		"test_hidden": true, "test_freed": false, "test_clean": false, "test_leaks": true, "test_peak": true, "test_misspelt": true, "test_unmarked": false, "test_last": false,
	} {
		qt.Check(t, qt.Equals(fails(t, text, name), want), qt.Commentf("%s", name))
	}
	for _, want := range []string{
		"1.5 MiB unfreed exceeds limit_leaks = 64.0 KiB:",
		"3 in DRAM  test_limits.py:",
		" exceeds limit_peak = 4.0 KiB",
		"ttmem takes limit_leaks and limit_peak, not limit_leak",
	} {
		qt.Check(t, qt.StringContains(text, want))
	}
	// only one of the tests failed, and holds its tensor by that; where CI is set, pytest's summary repeats all errors
	details, _, _ := strings.Cut(text, "short test summary info")
	qt.Check(t, qt.Equals(strings.Count(details, "the test failed: its traceback keeps variables"), 1))
	qt.Check(t, qt.StringContains(text, "test_limits.py::test_fails (failed)\n"))
	qt.Check(t, qt.IsFalse(strings.Contains(text, "Warning")))
	// the test function is the outermost call that is shown
	qt.Check(t, qt.StringContains(text, " test_leaks\n"))
	for _, runner := range []string{"pytest_pyfunc_call", "_multicall"} {
		qt.Check(t, qt.IsFalse(strings.Contains(text, runner)))
	}

	// a transformer with weights leaves nothing, and one that keeps activations is named by its line
	text, status = pytest("--ttmem", "-v", "test_transformer.py")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.IsFalse(fails(t, text, "test_inference[Transformer]")))
	qt.Check(t, qt.IsTrue(fails(t, text, "test_inference[Leaking]")))
	qt.Check(t, qt.Matches(text, `(?s).*192\.0 KiB unfreed exceeds limit_leaks = 0 B:\n +192\.0 KiB  8 in DRAM  `+
		lineMarked(t, "small_transformer.py", "leak")+` result · ttnn\.add\n.*`))

	// only marked tests are measured, or none
	text, status = pytest("-v", "test_limits.py::test_clean", "test_limits.py::test_unmarked")
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.StringContains(text, "0 B"))
	_, summary, _ := strings.Cut(text, "device memory")
	qt.Check(t, qt.StringContains(summary, "test_clean"))
	qt.Check(t, qt.IsFalse(strings.Contains(summary, "test_unmarked")))
	text, status = pytest("-v", "--no-ttmem", "test_limits.py::test_leaks")
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.IsFalse(strings.Contains(text, "device memory")))
	// limits of all tests; a mark replaces those that it names
	ini := filepath.Join(dir, "pytest.ini")
	qt.Assert(t, qt.IsNil(os.WriteFile(ini, []byte("[pytest]\nttmem_limit_leaks = 64 KiB\nttmem_limit_peak =\n    L1: 16 KiB\n    DRAM: 1 GiB\n"), 0o600)))
	text, status = pytest("-v", "-c", ini, "--rootdir", ".", "test_limits.py::test_clean", "test_limits.py::test_unmarked", "test_limits.py::test_spared")
	qt.Check(t, qt.Equals(status, 1))
	for name, want := range map[string]bool{"test_clean": false, "test_unmarked": true, "test_spared": false} {
		qt.Check(t, qt.Equals(fails(t, text, name), want), qt.Commentf("%s", name))
	}
	qt.Check(t, qt.StringContains(text, "528.0 KiB unfreed exceeds limit_leaks = 64.0 KiB:"))
	for _, setting := range []string{"ttmem_limit_peak=L9: 4 KiB", "ttmem_limit_peak=L1", "ttmem_limit_leaks=much"} {
		text, status = pytest("-o", setting, "test_limits.py::test_clean")
		qt.Check(t, qt.Equals(status, 4)) // a mistake in the use of pytest
		qt.Check(t, qt.Matches(text, `(?s).*ERROR: ttmem limits: .*(no region 'L9'|is not a size).*`))
	}
	text, status = pytest("-v", "--ttmem-command", "/nonexistent/ttmem", "test_limits.py::test_clean", "test_limits.py::test_unmarked")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(text, "device memory cannot be measured: no /nonexistent/ttmem"))
	qt.Check(t, qt.IsFalse(fails(t, text, "test_unmarked")))

	// a baseline: what tests leave and use is compared with an earlier run
	baseline := filepath.Join(t.TempDir(), "baseline.json") // beside no pytest.ini
	compared := []string{"--ttmem-baseline=" + baseline, "test_limits.py::test_clean", "test_limits.py::test_unmarked"}
	text, status = pytest(append(compared, "--ttmem-update-baseline")...)
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.StringContains(text, baseline+" has 2 tests of this run"))
	_, status = pytest(append(compared, "-v")...)
	qt.Check(t, qt.Equals(status, 0))
	figures, err := os.ReadFile(baseline)
	qt.Assert(t, qt.IsNil(err))
	smaller := regexp.MustCompile(`("DRAM  test_limits.py tensor · ttnn.empty": )540672`).ReplaceAll(figures, []byte("${1}1"))
	qt.Assert(t, qt.Not(qt.Equals(string(smaller), string(figures))), qt.Commentf("%s", figures))
	qt.Assert(t, qt.IsNil(os.WriteFile(baseline, smaller, 0o600)))
	text, status = pytest(append(compared, "-v")...)
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.IsFalse(fails(t, text, "test_clean")))
	qt.Check(t, qt.IsTrue(fails(t, text, "test_unmarked")))
	qt.Check(t, qt.Matches(text, `(?s).*528\.0 KiB unfreed exceeds the baseline's 1 B:\n +528\.0 KiB  1 in DRAM  test_limits\.py:\d+ tensor.*`))

	// programs that earlier tests left in the program cache do not count, so the order does not matter
	t.Run("L1 in any order", func(t *testing.T) {
		in := func(names ...string) map[string]string {
			for i := range names {
				names[i] = "test_l1_order.py::" + names[i]
			}
			text, status := pytest(append([]string{"--ttmem"}, names...)...)
			qt.Check(t, qt.Equals(status, 0))
			return peaksOfL1(text)
		}
		// each test is the first one of some order, which is as if it ran alone
		suite := in("test_large_program", "test_tensors", "test_small_program")
		qt.Check(t, qt.HasLen(suite, 3))
		qt.Check(t, qt.Equals(suite["test_tensors"], "128.0 KiB"))
		qt.Check(t, qt.DeepEquals(in("test_small_program", "test_tensors", "test_large_program"), suite))
		qt.Check(t, qt.DeepEquals(in("test_tensors", "test_large_program", "test_small_program"), suite))
	})
}

// peaksOfL1 returns the peak of L1 of each test by the table at the end.
func peaksOfL1(text string) map[string]string {
	peaks := make(map[string]string)
	_, table, _ := strings.Cut(text, "device memory")
	for _, row := range regexp.MustCompile(`(?m)^ +[0-9.]+ \w+ +[0-9.]+ \w+ +([0-9.]+ \w+)  \S+::(\w+)$`).FindAllStringSubmatch(table, -1) {
		peaks[row[2]] = row[1]
	}
	return peaks
}

// fails reports whether `pytest -v` lists an error for a test.
func fails(t *testing.T, text, name string) bool {
	t.Helper()
	failed := strings.Contains(text, "::"+name+" ERROR")
	qt.Check(t, qt.IsTrue(failed || strings.Contains(text, "::"+name+" PASSED")), qt.Commentf("%s", name))
	return failed
}
