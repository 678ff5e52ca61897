package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// measuredStep is what ttmem.step() says in measured.py.
type measuredStep struct {
	Measured bool
	Lost     int
	Peaks    map[string]uint64
	Chips    map[string]map[string]uint64
	Lines    map[string][][]any
	Left     [][]any
	Failures [][]any
	Text     string
}

// measuredFigures is what measured.py prints.
type measuredFigures struct {
	Absent                      uint64
	Weights                     []uint64
	Outer, Inner, Fails, Thread measuredStep
	Peak, Now, Library          map[string]uint64
	AfterReset                  uint64 `json:"after reset"`
	Still                       uint64
	Child                       int
	Chip                        string
	Seconds                     float64
}

func figuresIn(t *testing.T, out []byte) (figures measuredFigures) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^measured (.*)$`).FindSubmatch(out)
	qt.Assert(t, qt.IsNotNil(line), qt.Commentf("%s", out))
	qt.Assert(t, qt.IsNil(json.Unmarshal(line[1], &figures)))
	return figures
}

// check compares the figures with the library's and with one another.
func (f *measuredFigures) check(t *testing.T) {
	t.Helper()
	const small, large = 528 << 10, 2064 << 10
	qt.Check(t, qt.Equals(f.Absent, 0))
	qt.Check(t, qt.DeepEquals(f.Weights, []uint64{small, small, small}))
	qt.Check(t, qt.DeepEquals(f.Now, map[string]uint64{"DRAM": f.Library["DRAM"], "L1": f.Library["L1"]}))
	qt.Check(t, qt.Equals(f.Now["DRAM"], 2*small))
	qt.Check(t, qt.Equals(f.Still, 2*small))
	qt.Check(t, qt.Equals(f.AfterReset, 2*small))
	qt.Check(t, qt.Equals(f.Outer.Peaks["DRAM"], 2*small+large))
	qt.Check(t, qt.DeepEquals(f.Outer.Peaks, f.Inner.Peaks)) // which had all of it
	qt.Check(t, qt.DeepEquals(f.Outer.Chips, map[string]map[string]uint64{"0": f.Outer.Peaks}))
	line := lineMarked(t, "measured.py", "kept")
	var number float64
	_, err := fmt.Sscanf(line, "measured.py:%g", &number)
	qt.Assert(t, qt.IsNil(err))
	for _, step := range []measuredStep{f.Outer, f.Inner} {
		qt.Check(t, qt.DeepEquals(step.Left, [][]any{{"DRAM", float64(small), 1.0, line + " · ttnn.add", "measured.py", number}}))
		qt.Check(t, qt.StringContains(step.Text, "528.0 KiB left\n   528.0 KiB  1 in DRAM  "+line+" · ttnn.add"))
		qt.Check(t, qt.HasLen(step.Failures, 0))
		for region, peak := range step.Peaks {
			sum := 0.0
			for _, one := range step.Lines[region] {
				sum += one[0].(float64)
			}
			qt.Check(t, qt.Equals(sum, float64(peak)), qt.Commentf("%s", region))
		}
		qt.Check(t, qt.DeepEquals(step.Lines["L1"], [][]any{{float64(step.Peaks["L1"]), line + " · ttnn.add", "circular_buffer"}}))
	}
	qt.Check(t, qt.HasLen(f.Fails.Failures, 1))
	qt.Check(t, qt.DeepEquals(f.Fails.Failures[0][:2], []any{"DRAM", float64(64 << 30)}))
	qt.Check(t, qt.HasLen(f.Fails.Left, 0))
	qt.Check(t, qt.Equals(f.Thread.Peaks["DRAM"], 2*small+144<<10))
	qt.Check(t, qt.Equals(f.Child, 0))
	qt.Check(t, qt.Equals(f.Chip, "no chip 7; available: 0"))
	for _, step := range []measuredStep{f.Outer, f.Inner, f.Fails, f.Thread} {
		qt.Check(t, qt.IsTrue(step.Measured))
		qt.Check(t, qt.Equals(step.Lost, 0))
	}
}

// TestAProgramMeasuresItself: ttmem.step() and the functions that PyTorch's users know say what the library does, and
// what ttmem says of a recording of the same run.
func TestAProgramMeasuresItself(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	under := env.Command(t.Context(), rig.N150, program(t, "measured.py"))
	dir := t.TempDir()
	file := filepath.Join(dir, "run.ttmem")
	cmd := exec.Command(ttmem, append([]string{"run", "-o", file, "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = append(testEnviron(under.Env, rig.N150, dir), "PATH="+filepath.Dir(ttmem)+":"+os.Getenv("PATH")), dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	f := figuresIn(t, out)
	f.check(t)

	type peaks struct {
		Peaks []struct {
			Region string
			Bytes  uint64
		}
	}
	for want, args := range map[*map[string]uint64][]string{
		&f.Outer.Peaks: {"peak", file, "--from", "a", "--to", "b"},
		&f.Peak:        {"peak", file, "--to", "b"},
	} {
		for _, p := range reads[peaks](t, args...).Peaks {
			qt.Check(t, qt.Equals((*want)[p.Region], p.Bytes), qt.Commentf("%v %s", args, p.Region))
		}
	}
	live := reads[struct {
		Groups []struct {
			Key   string
			Bytes uint64
		}
	}](t, "dump", file, "--at", "b", "--by", "region")
	qt.Check(t, qt.Equals(live.Groups[0].Bytes, f.Now["DRAM"]))
	leaks := reads[struct {
		Leaks []struct {
			Name  string
			Bytes float64
		}
	}](t, "leaks", file, "--from", "a", "--to", "b").Leaks
	qt.Assert(t, qt.HasLen(leaks, 1))
	qt.Check(t, qt.DeepEquals([]any{leaks[0].Bytes, leaks[0].Name}, []any{f.Outer.Left[0][1], f.Outer.Left[0][3]}))
	failures := reads[struct {
		Failures []struct {
			Name      string
			SizeBytes float64 `json:"size_bytes"`
		}
	}](t, "oom", file).Failures
	qt.Assert(t, qt.HasLen(failures, 1))
	qt.Check(t, qt.DeepEquals([]any{failures[0].SizeBytes, failures[0].Name}, f.Fails.Failures[0][1:]))
}

// TestAProgramOfAnOrdinaryUserMeasuresItself through the host's service, or is told in one line what to do.
func TestAProgramOfAnOrdinaryUserMeasuresItself(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t, "TTMEM_SOCKET="+s.socket)
	s.discover(t, u.env)
	u.more = append(u.more, "PATH="+u.dir)
	python := func(args ...string) ([]byte, error) { // only the program of the shell has the capability
		args = append([]string{"-c", `exec "$@"`, "sh", u.env.Command(t.Context(), rig.N150).Path}, args...)
		return u.command(t, "/bin/sh", args...).CombinedOutput()
	}
	out, err := python(program(t, "measured.py"))
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	f := figuresIn(t, out)
	f.check(t)

	u.more = append(u.more, "TTMEM_SOCKET="+filepath.Join(t.TempDir(), "none.sock"), "PYTHONPATH="+filepath.Dir(program(t, "marks.py")))
	const needs = "tracing needs root: no ttmem service runs on this host, and there is no sudo; an administrator starts one with `ttmem serve`"
	out, _ = python("-c", `import marks, ttmem
with ttmem.step("optional", required=False) as step:
    print("inside")
print(step, step.peaks["DRAM"], step.left)
with ttmem.step("forward"):
    print("never")`)
	said := string(out)
	qt.Check(t, qt.StringContains(said, "RuntimeWarning: the device memory of step optional is not measured: "+needs+"\n"))
	qt.Check(t, qt.StringContains(said, "inside\nstep optional: not measured 0 []\n"))
	qt.Check(t, qt.IsFalse(strings.Contains(said, "never")))
	qt.Check(t, qt.StringContains(said, "Error: the device memory of step forward is not measured: "+needs+"\n"))
}
