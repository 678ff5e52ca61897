package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// A missing function is an error that says what to do instead: for a command at its end,
// because it may load more libraries until then.
func TestMarkAtMissingFunction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const softmx = `(?s).*ttmem: --mark-at ttnn::softmx: no native function of that name .*`
	file := filepath.Join(dir, "model.ttmem")
	_, stderr, status := askOf(t, dir, []string{"run", "-o", file, "--mark-at", "ttnn::softmx", "--mark-at", "Model.forward"}, program(t, "leak_clean.py"), "once")
	qt.Check(t, qt.Equals(status, 125))
	qt.Check(t, qt.Matches(stderr, softmx))
	qt.Check(t, qt.Matches(stderr, `(?s).*ttmem: --mark-at Model.forward: [^\n]*for a Python function.*`))
	qt.Check(t, qt.StringContains(stderr, "Device memory")) // the report is printed nevertheless
	_, err := os.Stat(file)
	qt.Check(t, qt.IsNil(err))
}

// A missing function of a running process is an error at once, and nothing is recorded.
func TestMarkAtFunctionMissingInProcess(t *testing.T) {
	t.Parallel()
	p := startTarget(t, setup(t, "0.81.1", "3.10"), rig.N150, program(t, "hold.py"), "1", "64")
	p.expect(t, "holding")
	file := filepath.Join(t.TempDir(), "model.ttmem")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, ttmem, "attach", "-o", file, "-p", strconv.Itoa(p.Process.Pid), "--mark-at", "ttnn::softmx").CombinedOutput()
	qt.Check(t, qt.IsNotNil(err))
	qt.Check(t, qt.Matches(string(out), `ttmem: --mark-at ttnn::softmx: no native function of that name in the \d+ mapped files; [^\n]*\n`))
	_, err = os.Stat(file)
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}
