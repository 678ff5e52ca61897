package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

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

// Two programs that map as much code as PyTorch and ttnn run one after the other. The second has
// complete stacks from its first allocation on, because the kernel kept the unwind rows.
// `ttmem run` ends when they end.
func TestMuchCode(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	libraries := strings.Join(tracetest.MuchCode(t, 3, "."), ":")
	for _, c := range []struct {
		name string
		busy bool
	}{{"idle", false}, {"busy", true}} {
		t.Run(c.name, func(t *testing.T) {
			if c.busy {
				keepBusy(t)
			}
			dir := t.TempDir()
			file, ended := filepath.Join(dir, "events.ttmem"), filepath.Join(dir, "ended")
			under := env.Command(context.Background(), "n150", program(t, "one.py"))
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, ttmem, "run", "-o", file, "--", under.Path, "-c", `
import os, subprocess, sys, time
for _ in range(2):
    subprocess.check_call([sys.executable, sys.argv[1]], env={**os.environ, "LD_PRELOAD": sys.argv[2]})
open(sys.argv[3], "w").write(str(time.time_ns()))
os._exit(0)`, under.Args[1], libraries, ended)
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
			late := now.Sub(time.Unix(0, ns))
			t.Logf("`ttmem run` ended %v after the command", late)
			qt.Check(t, qt.IsTrue(late < 5*time.Second*patience))
			var programs []int
			stacks := make(map[int][]*event.Stack)
			for _, e := range readEvents(t, file) {
				if e.Kind != event.Alloc {
					continue
				}
				if stacks[e.PID] == nil {
					programs = append(programs, e.PID)
				}
				stacks[e.PID] = append(stacks[e.PID], e.Stack)
			}
			qt.Assert(t, qt.HasLen(programs, 2))
			for i, stack := range stacks[programs[1]] {
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
		})
	}
}
