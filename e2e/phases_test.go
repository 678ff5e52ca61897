package e2e

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
)

// TestPhases: without marks, the functions of a training loop with gradient accumulation are its phases,
// and the peak of DRAM during each equals the library's own view.
func TestPhases(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			env, dir := setup(t, version, "3.10"), t.TempDir()
			under := env.Command(t.Context(), "n150", program(t, "phases.py"))
			cmd := exec.Command(ttmem, append([]string{"phases", "--json", "--", under.Path}, under.Args[1:]...)...)
			cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", stderr.String()))
			type phase struct {
				Calls   string
				Entered int
				Peaks   []struct {
					Region string
					Bytes  uint64
				}
				LeftBytes uint64 `json:"left_bytes"`
				Phases    []phase
			}
			var said struct{ Phases []phase }
			printed := lines(string(out))
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(printed[len(printed)-1]), &said)))
			truth := make(map[string]uint64)
			for _, line := range printed {
				if of, ok := strings.CutPrefix(line, "PEAK "); ok {
					name, bytes, _ := strings.Cut(of, " ")
					truth[name], _ = strconv.ParseUint(bytes, 10, 64)
				}
			}
			qt.Assert(t, qt.HasLen(truth, 4))

			var main *phase
			for i := range said.Phases {
				if said.Phases[i].Calls == "main" {
					main = &said.Phases[i]
				}
			}
			qt.Assert(t, qt.IsNotNil(main), qt.Commentf("%+v", said))
			peaks, entered := make(map[string]uint64), make(map[string]int)
			for _, f := range main.Phases {
				for _, p := range f.Peaks {
					if p.Region == "DRAM" {
						peaks[f.Calls] = p.Bytes
					}
				}
				entered[f.Calls] = f.Entered
			}
			qt.Check(t, qt.DeepEquals(peaks, truth))
			qt.Check(t, qt.DeepEquals(entered, map[string]int{"load": 1, "forward": 6, "backward": 6, "optimize": 2}))
		})
	}
}
