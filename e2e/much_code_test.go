package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// keepBusy runs more loops than the machine has processors.
func keepBusy(t *testing.T) {
	for range runtime.NumCPU() + 1 {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
}

// Two programs with much code run one after the other. The second has complete stacks from its
// first allocation on, because the kernel kept the unwind rows. `ttmem run` ends when they end.
// The code is made up; with -long it is PyTorch's as well, and then both have complete stacks.
func TestMuchCode(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	libraries := "LD_PRELOAD=" + strings.Join(tracetest.MuchCode(t, 3, "."), ":")
	for _, busy := range []bool{false, true} {
		if !busy && !*tracetest.Long { // the easier case
			continue
		}
		name := map[bool]string{false: "idle", true: "busy"}[busy]
		t.Run(name, func(t *testing.T) {
			if busy {
				keepBusy(t)
			}
			late, stacks := runTwice(t, env, libraries, program(t, "one.py"))
			qt.Check(t, qt.IsTrue(late < time.Minute*patience))
			assertWhole(t, stacks[1])
		})
		if !*tracetest.Long {
			continue
		}
		t.Run("torch "+name, func(t *testing.T) {
			torch := "PYTHONPATH=" + torchFor(t, env)
			if busy {
				keepBusy(t)
			}
			_, stacks := runTwice(t, env, torch, program(t, "torch_one.py"))
			assertWhole(t, stacks[0])
			assertWhole(t, stacks[1])
		})
	}
}

// torchFor installs PyTorch, once, and returns the folder of its packages. It takes 5 GB.
func torchFor(t *testing.T, env *rig.Env) string {
	cache, err := rig.CacheDir()
	qt.Assert(t, qt.IsNil(err))
	dir := filepath.Join(cache, "packages", "torch")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	t.Log("installing PyTorch (2 GB to download, once) …")
	part := dir + ".part"
	qt.Assert(t, qt.IsNil(os.RemoveAll(part)))
	out, err := exec.Command(env.Python, "-m", "pip", "install", "-q", "--no-cache-dir", "--target", part, "torch==2.7.1").CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Assert(t, qt.IsNil(os.Rename(part, dir)))
	return dir
}

// runTwice runs a Python program twice under `ttmem run`, with a variable of the environment. It
// returns by how much ttmem ended later than the second one, and the stacks of each one's
// allocations.
func runTwice(t *testing.T, env *rig.Env, variable string, args ...string) (late time.Duration, stacks [2][]*event.Stack) {
	dir := t.TempDir()
	file, ended := filepath.Join(dir, "events.ttmem"), filepath.Join(dir, "ended")
	under := env.Command(context.Background(), "n150", args...)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ttmem, append([]string{"run", "-o", file, "--", under.Path, "-c", `
import os, subprocess, sys, time
name, value = sys.argv[2].split("=", 1)
for _ in range(2):
    subprocess.check_call([sys.executable, *sys.argv[3:]], env={**os.environ, name: value})
open(sys.argv[1], "w").write(str(time.time_ns()))
os._exit(0)`, ended, variable}, under.Args[1:]...)...)
	cmd.Env = testEnviron(under.Env, "n150", dir)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%s", &stderr))
	now := time.Now()
	text, err := os.ReadFile(ended)
	qt.Assert(t, qt.IsNil(err))
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	qt.Assert(t, qt.IsNil(err))
	late = now.Sub(time.Unix(0, ns))
	t.Logf("`ttmem run` ended %v after the command", late)
	var programs []int
	for _, e := range readEvents(t, file) {
		if e.Kind != event.Alloc {
			continue
		}
		if !slices.Contains(programs, e.PID) {
			programs = append(programs, e.PID)
			qt.Assert(t, qt.IsTrue(len(programs) <= 2))
		}
		i := slices.Index(programs, e.PID)
		stacks[i] = append(stacks[i], e.Stack)
	}
	return late, stacks
}

// assertWhole checks that stacks begin where programs begin.
func assertWhole(t *testing.T, stacks []*event.Stack) {
	t.Helper()
	qt.Check(t, qt.IsTrue(len(stacks) >= 5), qt.Commentf("%d allocations", len(stacks)))
	for i, stack := range stacks {
		frames := stack.Frames()
		if len(frames) == 0 {
			t.Errorf("allocation %d has no stack", i+1)
			continue
		}
		last := frames[len(frames)-1]
		if last.Name != "_start" && !strings.HasPrefix(last.Module, "libc.so") {
			t.Errorf("allocation %d: a stack of %d frames ends at %v", i+1, len(frames), last)
		}
	}
}
