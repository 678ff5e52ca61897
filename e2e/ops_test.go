package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
)

// coreUse is the use of one core, as ttmem and the library report it.
type coreUse struct {
	CBs         uint64 `json:"cb_bytes"`
	DFBs        uint64 `json:"dfb_bytes"`
	Scratchpads uint64 `json:"scratchpad_bytes"`
	Tensors     uint64 `json:"tensor_bytes"`
}

// The figures of each operation equal the library's own plan of its program per core, both of a
// program that is compiled and of one from the program cache.
func TestOps(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			env, dir, path := setup(t, version, "3.10"), t.TempDir(), program(t, "ops.py")
			under := env.Command(t.Context(), "n150", path)
			cmd := exec.Command(ttmem, append([]string{"ops", "--json", "-n", "0", "--", under.Path}, under.Args[1:]...)...)
			cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", stderr.String()))
			var said struct {
				Lost       map[string]uint64
				Operations []struct {
					Op   string
					Line int
					Runs uint64
					Peak struct {
						coreUse
						Bytes    uint64
						Headroom uint64 `json:"headroom_bytes"`
						Capacity uint64 `json:"capacity_bytes"`
					}
				}
			}
			printed := lines(string(out))
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(printed[len(printed)-1]), &said)))
			qt.Check(t, qt.HasLen(said.Lost, 0))

			marked := markedLines(t, path)
			cold, warm := make(map[string]coreUse), make(map[string]coreUse)
			var headroom uint64
			for _, o := range said.Operations {
				uses, runs := cold, uint64(1)
				if o.Line == marked["warm"] {
					uses, runs = warm, 3
				} else {
					qt.Check(t, qt.Equals(o.Line, marked["cold"]))
				}
				uses[o.Op] = o.Peak.coreUse
				qt.Check(t, qt.Equals(o.Runs, runs), qt.Commentf("%s", o.Op))
				u := o.Peak.coreUse
				qt.Check(t, qt.Equals(o.Peak.Bytes, u.CBs+u.DFBs+u.Scratchpads+u.Tensors))
				qt.Check(t, qt.Equals(o.Peak.Headroom, o.Peak.Capacity-o.Peak.Bytes))
				qt.Check(t, qt.IsTrue(o.Peak.Headroom >= headroom), qt.Commentf("%s is not in order", o.Op))
				headroom = o.Peak.Headroom
			}
			qt.Check(t, qt.HasLen(cold, 7))
			qt.Check(t, qt.DeepEquals(warm, cold))
			if version != "0.81.1" {
				return // whose graph capture reports less
			}
			plan, live := planOf(t, dir, env.Command(t.Context(), "n150", path, filepath.Join(dir, "said.json")))
			for op, use := range plan {
				use.Tensors += live // which the capture did not see
				plan[op] = use
			}
			qt.Check(t, qt.DeepEquals(cold, plan))
			qt.Check(t, qt.IsTrue(cold["ttnn.embedding"].Scratchpads > 0))
		})
	}
}

// planOf runs the program without ttmem. It returns the figures of the library for each operation,
// and the live bytes in each bank of L1.
func planOf(t *testing.T, dir string, cmd *exec.Cmd) (plan map[string]coreUse, live uint64) {
	t.Helper()
	cmd.Env, cmd.Dir = testEnviron(cmd.Env, "n150", dir), dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	text, err := os.ReadFile(filepath.Join(dir, "said.json"))
	qt.Assert(t, qt.IsNil(err))
	var said struct {
		Live             uint64
		Cold, Warm, Plan map[string]coreUse
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(text, &said)))
	for op, plan := range said.Plan {
		// only a capture that dispatches nothing has dataflow buffers
		qt.Check(t, qt.Equals(said.Cold[op], coreUse{CBs: plan.CBs, Tensors: plan.Tensors}), qt.Commentf("%s", op))
		// and of a program from the cache the library reports nothing
		qt.Check(t, qt.Equals(said.Warm[op], coreUse{Tensors: plan.Tensors}), qt.Commentf("%s", op))
	}
	return said.Plan, said.Live
}
