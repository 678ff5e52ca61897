package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// runAlone runs a program that is not traced, and returns what it prints.
func runAlone(t *testing.T, env *rig.Env, board rig.Board, args ...string) (out string, err error) {
	t.Helper()
	cmd := env.Command(t.Context(), board, args...)
	cmd.Dir = t.TempDir()
	b, err := cmd.Output()
	return string(b), err
}

// lineOf is the line of a program with a remark: "whatif.py:24".
func lineOf(t *testing.T, name, remark string) string {
	t.Helper()
	text, err := os.ReadFile(program(t, name))
	qt.Assert(t, qt.IsNil(err))
	before, _, found := strings.Cut(string(text), "# "+remark+"\n")
	qt.Assert(t, qt.IsTrue(found))
	return fmt.Sprintf("%s:%d", name, strings.Count(before, "\n")+1)
}

// TestTheLargestBatchIsTrue: the extrapolated batch size works, and the next one dies at the line that fit names.
func TestTheLargestBatchIsTrue(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	var files []string
	for _, batch := range []string{"1", "3"} {
		file, _ := recordProgram(t, "0.81.1", "growing.py", batch)
		files = append(files, file)
	}
	var said struct {
		Largest int
		Fails   struct {
			Value  int
			Region string
			Stack  []event.Frame
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "fit", files[0], files[1], "--param", "1,3", "--json"), &said)))
	qt.Check(t, qt.Equals(said.Fails.Value, said.Largest+1))
	qt.Check(t, qt.Equals(said.Fails.Region, "L1"))
	qt.Check(t, qt.IsTrue(name.AtLine(lineOf(t, "growing.py", "WIDE"))(event.StackOf(said.Fails.Stack))), qt.Commentf("%v", said.Fails.Stack))
	out, err := runAlone(t, env, "n150", program(t, "growing.py"), strconv.Itoa(said.Largest))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(out, "WORKED"))
	_, err = runAlone(t, env, "n150", program(t, "growing.py"), strconv.Itoa(said.Largest+1))
	var exit *exec.ExitError
	qt.Assert(t, qt.ErrorAs(err, &exit))
	qt.Check(t, qt.Matches(string(exit.Stderr), `(?s).*\n    wide = .*Out of Memory.*`))
}

// TestTheLimitsOfWorkerL1Size: the smallest worker_l1_size with which tensors or circular buffers fit by replay, and the largest
// with which a program's kernels do, works, and the next one does not.
func TestTheLimitsOfWorkerL1Size(t *testing.T) {
	t.Parallel()
	const step = 64 // what tt-metal rounds the beginning of L1 to, or half of it
	for _, need := range []string{"tensors", "buffers", "kernels"} {
		t.Run(need, func(t *testing.T) {
			t.Parallel()
			file, _ := recordProgram(t, "0.81.1", "worker_l1.py", need)
			fits := func(size int) bool {
				var said struct {
					Failures []struct {
						WhatIf struct{ Fits bool } `json:"what_if"`
					}
					WhatIf struct {
						OtherFailures int `json:"other_failures"`
						Proof         struct{ Proved bool }
					} `json:"what_if"`
				}
				qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "oom", file, "--json", "--set", fmt.Sprintf("worker_l1_size=%d", size)), &said)))
				if need == "kernels" {
					qt.Assert(t, qt.HasLen(said.Failures, 2))
					return said.Failures[1].WhatIf.Fits // the first one says what the largest size is
				}
				qt.Assert(t, qt.HasLen(said.Failures, 0))
				qt.Check(t, qt.Equals(said.WhatIf.Proof.Proved, said.WhatIf.OtherFailures == 0))
				return said.WhatIf.Proof.Proved
			}
			works := func(size int) bool {
				out, err := runAlone(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "worker_l1.py"), need, strconv.Itoa(size))
				qt.Assert(t, qt.IsNil(err))
				return strings.Contains(out, "WORKED")
			}
			const most = 1463968 / step // by the library
			limit := sort.Search(most, func(n int) bool { return fits(n*step) == (need != "kernels") })
			t.Logf("%s: %d B", need, limit*step)
			qt.Check(t, qt.IsTrue(limit > 0 && limit < most))
			qt.Check(t, qt.Equals(works(limit*step), need != "kernels"))
			qt.Check(t, qt.Equals(works((limit-1)*step), need == "kernels"))
		})
	}
}
