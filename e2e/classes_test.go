package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
)

// TestClasses: each buffer has its class, by its call stack under `ttmem run`, and by who holds it after
// a late attach. A mock device has no binaries of kernels: cmd/ttmem has a recording with them.
func TestClasses(t *testing.T) {
	t.Parallel()
	for version, args := range map[string][]string{"0.81.1": nil, "0.72.0": {"untraced"}} { // whose mock captures no traces
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			want := map[string]uint64{"tensor": 6, "program cache": 5, "trace": 1, "global semaphore": 2, "global circular buffer": 2}
			if args != nil {
				delete(want, "trace")
				want["tensor"] = 5
			}
			env, dir := setup(t, version, "3.10"), t.TempDir()
			recording := filepath.Join(dir, "classes.ttmem")
			under := env.Command(t.Context(), "n150", append([]string{program(t, "classes.py")}, args...)...)
			run := exec.Command(ttmem, append([]string{"run", "-o", recording, "--", under.Path}, under.Args[1:]...)...)
			run.Env, run.Dir = testEnviron(under.Env, "n150", dir), dir
			out, err := run.CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			var diff struct {
				Groups []struct {
					Key    string
					Static bool
					B      struct{ Buffers uint64 }
				}
			}
			askClasses(t, &diff, "diff", recording, "--from", "begin", "--to", "left")
			left := make(map[string]uint64)
			for _, g := range diff.Groups {
				if !g.Static && g.B.Buffers > 0 {
					left[g.Key] = g.B.Buffers
				}
			}
			qt.Check(t, qt.DeepEquals(left, want))

			pid, _ := startHolder(t, version, "3.10", "classes.py", args...)
			var dump struct {
				Groups []struct {
					Key, Class string
					Buffers    uint64
				}
			}
			askClasses(t, &dump, "dump", "-p", fmt.Sprint(pid))
			held := make(map[string]uint64)
			for _, g := range dump.Groups {
				held[g.Key] = g.Buffers
				qt.Check(t, qt.Equals(g.Class, g.Key))
			}
			qt.Check(t, qt.DeepEquals(held, want))
		})
	}
}

// askClasses runs a command with --by class --json.
func askClasses(t *testing.T, document any, args ...string) {
	t.Helper()
	cmd := exec.Command(ttmem, append(args, "--by", "class", "--json")...)
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", cmd))
	qt.Assert(t, qt.IsNil(json.Unmarshal(out, document)))
}
