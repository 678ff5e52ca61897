// Package tracetest has helpers for tests of several packages: it builds, starts and
// controls programs. Only tests import it.
package tracetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// NeedsRoot skips a test that traces if it does not run as root; make test does.
func NeedsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
}

// Compile builds a program, or with -shared a library, from sources in a folder.
func Compile(t *testing.T, dir, compiler, output string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no %s", compiler)
	}
	cmd := exec.Command(compiler, append([]string{"-O2", "-o", output}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
}

// Program is a running program that records its calls.
type Program struct {
	*exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader
	// Shadow is the file with that record.
	Shadow string
}

// Start starts a program and waits until it is ready.
func Start(t *testing.T, args ...string) *Program {
	t.Helper()
	p := &Program{Cmd: exec.Command(args[0], args[1:]...), Shadow: filepath.Join(t.TempDir(), "shadow")}
	p.Env = append(os.Environ(), "SHADOW="+p.Shadow)
	p.StartReady(t)
	return p
}

// StartReady starts the program and waits until it is ready. It is killed when the test
// ends.
func (p *Program) StartReady(t *testing.T) {
	t.Helper()
	p.Stderr = os.Stderr
	var err error
	p.In, err = p.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := p.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	p.Out = bufio.NewReader(out)
	qt.Assert(t, qt.IsNil(p.Start()))
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	qt.Assert(t, qt.Equals(p.Line(t), "ready"))
}

// Line returns the next line that the program prints.
func (p *Program) Line(t *testing.T) string {
	t.Helper()
	line, err := p.Out.ReadString('\n')
	qt.Assert(t, qt.IsNil(err), qt.Commentf("the program's output has ended"))
	return strings.TrimSpace(line)
}

// Tell sends the program a line.
func (p *Program) Tell(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(p.In, line+"\n")
	qt.Assert(t, qt.IsNil(err))
}

// Do sends a command and returns the answer.
func (p *Program) Do(t *testing.T, format string, args ...any) string {
	t.Helper()
	p.Tell(t, fmt.Sprintf(format, args...))
	return p.Line(t)
}

// Programs is the path of e2e/programs.
func Programs(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	qt.Assert(t, qt.IsNil(err))
	for ; ; dir = filepath.Dir(dir) {
		programs := filepath.Join(dir, "e2e", "programs")
		if _, err := os.Stat(programs); err == nil {
			return programs
		}
		qt.Assert(t, qt.Not(qt.Equals(dir, "/")), qt.Commentf("not in the repository"))
	}
}

// TTNN starts a program of e2e/programs that imports ttnn and then waits for a line.
func TTNN(t *testing.T, version, name string, args ...string) (*Program, *rig.Env) {
	t.Helper()
	env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(Programs(t), name)
	dir := t.TempDir()
	p := &Program{Cmd: env.Command(context.Background(), rig.N150, append([]string{"-c", `
import os, runpy, sys
import ttnn
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
print("ready", flush=True)
sys.stdin.readline()
runpy.run_path(sys.argv[0], run_name="__main__")
`, path}, args...)...)}
	p.Dir = dir
	p.Env = append(p.Env, "TTMEM_MESH=1x1", "TTMEM_CHECKPOINTS="+filepath.Join(dir, "checkpoints"), "PYTHONUNBUFFERED=1")
	p.StartReady(t)
	return p, env
}

// Took logs how long something takes, and returns it.
func Took(t *testing.T, what string, do func()) time.Duration {
	t.Helper()
	start := time.Now()
	do()
	d := time.Since(start)
	t.Logf("%8.1f ms %s", float64(d.Microseconds())/1000, what)
	return d
}
