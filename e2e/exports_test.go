package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"ttmem/tracer/place"
)

// The exports of a recording have the lines that allocated memory, and the totals of the report.
// The recording gets a name from ttmem, and belongs to the user behind sudo.
func TestExports(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	under := env.Command(t.Context(), "n150", program(t, "demo.py"))
	cmd := exec.Command(ttmem, append([]string{
		"run", "--", under.Path,
	}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = append(testEnviron(under.Env, "n150", dir), "SUDO_UID=54321", "SUDO_GID=54321"), dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%s", stderr.String()))
	recordings, err := filepath.Glob(file("ttmem-demo-*.ttmem"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(recordings, 1))
	info, err := os.Stat(recordings[0])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(place.Owner(info), 54321))
	qt.Check(t, qt.StringContains(stderr.String(), "\n  ttmem oom "+filepath.Base(recordings[0])+" "))
	out := ask(t, "report", recordings[0], "--json")
	for to, path := range map[string]string{"folded": "folded", "pprof": "pprof"} {
		ask(t, "export", recordings[0], "--to", to, "-o", file(path))
	}

	var report struct {
		Stacks struct {
			Taken      uint64            `json:"taken"`
			Incomplete map[string]uint64 `json:"incomplete"`
		} `json:"stacks"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &report)))
	qt.Check(t, qt.IsTrue(report.Stacks.Taken > 100))
	qt.Check(t, qt.HasLen(report.Stacks.Incomplete, 0))

	folded, err := os.ReadFile(file("folded"))
	qt.Assert(t, qt.IsNil(err))
	weights := uint64(0)
	for _, line := range lines(string(folded)) {
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseUint(line[i+1:], 10, 64)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", line))
		if strings.Contains(line, ";DRAM;") && strings.Contains(line, "<module> (demo.py:34);__init__ (demo.py:26);<listcomp> (demo.py:26);__init__ (demo.py:1") {
			weights += n
		}
	}
	qt.Check(t, qt.Equals(weights, 16*540672))
	f, err := os.Open(file("pprof"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	p, err := profile.Parse(f)
	qt.Assert(t, qt.IsNil(err))
	inuse, err := p.SampleIndexByName("inuse_space")
	qt.Assert(t, qt.IsNil(err))
	live := make(map[string]int64) // by region
	for _, sample := range p.Sample {
		live[sample.Label["region"][0]] += sample.Value[inuse]
	}
	// in the report: not freed when the device closed
	qt.Check(t, qt.Equals(live["DRAM"], 16*540672))
	qt.Check(t, qt.Equals(live["L1"], 2*524288))
	pprof, err := exec.Command("go", "tool", "pprof", "-top", "-sample_index=alloc_space", file("pprof")).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", pprof))
	qt.Check(t, qt.StringContains(string(pprof), "matmul"))
}

// Without -o, attach records to a new file in its folder and ends with the next commands. With
// --no-record it leaves no recording.
func TestAttachRecordsByDefault(t *testing.T) {
	t.Parallel()
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "hold.py"), "3", "512")
	p.expect(t, "holding")
	for _, flags := range [][]string{nil, {"--no-record"}} {
		cmd := exec.Command(ttmem, append([]string{"attach", "-p", strconv.Itoa(p.Process.Pid), "--duration", "1ns"}, flags...)...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		recordings, err := filepath.Glob(filepath.Join(cmd.Dir, "*.ttmem"))
		qt.Assert(t, qt.IsNil(err))
		if flags != nil {
			qt.Check(t, qt.HasLen(recordings, 0))
			qt.Check(t, qt.Not(qt.StringContains(string(out), "\n  ttmem ")))
			continue
		}
		qt.Assert(t, qt.HasLen(recordings, 1))
		name := filepath.Base(recordings[0])
		qt.Check(t, qt.Matches(name, `ttmem-python.*-`+strconv.Itoa(p.Process.Pid)+`\.ttmem`))
		for _, command := range []string{"leaks", "peak", "top"} {
			qt.Check(t, qt.StringContains(string(out), "\n  ttmem "+command+" "+name+" "))
		}
		qt.Check(t, qt.StringContains(ask(t, "dump", recordings[0]), "3 buffers"))
	}
}
