package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// peaksSaid is the compared part of `ttmem peak --json`.
type peaksSaid struct {
	BeginNs uint64 `json:"begin_ns"`
	Peaks   []struct {
		Devices     []int  `json:"devices"`
		Region      string `json:"region"`
		TimeNs      uint64 `json:"time_ns"`
		Bytes       uint64 `json:"bytes"`
		StaticBytes uint64 `json:"static_bytes"`
		Earlier     *struct {
			TimeNs uint64 `json:"time_ns"`
			Bytes  uint64
		}
		Holders  []peakHolderSaid
		Programs []peakHolderSaid
		Timeline struct {
			MaxBytes []uint64 `json:"max_bytes"`
		}
	}
	Lost map[string]uint64
}

type peakHolderSaid struct {
	Bytes, Count uint64
	File         string
	Line         int
	Op           string
}

// markedLines are the marked lines of a program by their names.
func markedLines(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	lines := make(map[string]int)
	for i, line := range strings.Split(string(text), "\n") {
		if m := regexp.MustCompile(`# line: (.*)$`).FindStringSubmatch(line); m != nil {
			lines[m[1]] = i + 1
		}
	}
	return lines
}

// A peak inside an operation, made of a temporary and of two lines' buffers, is attributed
// to its lines, with the bytes of the library's own allocator. So is a peak of L1, made of
// buffers and circular buffers.
func TestPeak(t *testing.T) {
	t.Parallel()
	for _, board := range []rig.Board{"n150", "t3000"} {
		t.Run(string(board), func(t *testing.T) {
			t.Parallel()
			env := setup(t, "0.81.1", "3.10")
			dir, path := t.TempDir(), program(t, "peak_op.py")
			under := env.Command(t.Context(), board, path)
			cmd := exec.Command(ttmem, append([]string{"peak", "--json", "--", under.Path}, under.Args[1:]...)...)
			cmd.Env, cmd.Dir = testEnviron(under.Env, board, dir), dir
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", stderr.String()))
			var said peaksSaid
			printed := lines(string(out))
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(printed[len(printed)-1]), &said)))
			qt.Check(t, qt.HasLen(said.Lost, 0))

			allocated := make(map[string]map[string]uint64) // by checkpoint and region, of each bank
			times := make(map[string]uint64)
			checkpoints := readCheckpoints(t, dir)
			chips := len(checkpoints[0].Devices[0].Chips)
			for _, c := range checkpoints {
				times[c.Name] = c.TimeNs
				allocated[c.Name] = make(map[string]uint64)
				for region, view := range c.Devices[0].Regions {
					allocated[c.Name][region] = view.AllocatedPerBank
				}
			}
			marked := markedLines(t, path)
			qt.Assert(t, qt.Equals(len(said.Peaks), 2))
			dram, l1 := said.Peaks[0], said.Peaks[1]

			qt.Check(t, qt.Equals(dram.Region, "DRAM"))
			qt.Check(t, qt.HasLen(dram.Devices, chips))
			qt.Check(t, qt.IsTrue(dram.TimeNs > times["before tril"] && dram.TimeNs < times["after tril"]))
			// the mask and the result are as large as their input
			tensor := allocated["after tril"]["DRAM"] - allocated["before tril"]["DRAM"]
			qt.Check(t, qt.Equals(dram.Bytes, (allocated["before tril"]["DRAM"]+2*tensor)*12))
			qt.Check(t, qt.DeepEquals(byLine(dram.Holders), map[int]peakHolderSaid{
				marked["cache"]:  {Bytes: 3 * 12 * tensor, Count: 3, Op: "ttnn.empty", Line: marked["cache"]},
				marked["scores"]: {Bytes: 12 * tensor, Count: 1, Op: "ttnn.empty", Line: marked["scores"]},
				marked["tril"]:   {Bytes: 2 * 12 * tensor, Count: 2, Op: "ttnn.tril", Line: marked["tril"]},
			}))

			qt.Check(t, qt.Equals(l1.Region, "L1"))
			qt.Check(t, qt.HasLen(l1.Devices, chips))
			qt.Check(t, qt.IsTrue(l1.TimeNs > times["before softmax"] && l1.TimeNs < times["after softmax"]))
			qt.Check(t, qt.Equals(l1.Bytes-l1.StaticBytes, allocated["after softmax"]["L1"]))
			result := allocated["after softmax"]["L1"] - allocated["before softmax"]["L1"]
			qt.Check(t, qt.DeepEquals(byLine(l1.Holders), map[int]peakHolderSaid{
				marked["tokens"]:    {Bytes: result, Count: 1, Op: "ttnn.empty", Line: marked["tokens"]},
				marked["positions"]: {Bytes: 2 * result, Count: 1, Op: "ttnn.empty", Line: marked["positions"]},
				marked["softmax"]:   {Bytes: result, Count: 1, Op: "ttnn.softmax", Line: marked["softmax"]},
			}))
			programs := byLine(l1.Programs)
			qt.Check(t, qt.Equals(programs[marked["softmax"]].Bytes, l1.StaticBytes))
			qt.Check(t, qt.Equals(l1.Programs[0].Op, "ttnn.softmax"))
			qt.Check(t, qt.IsTrue(programs[marked["tril"]].Bytes < l1.StaticBytes))
			for _, peak := range said.Peaks {
				var most uint64
				for _, n := range peak.Timeline.MaxBytes {
					most = max(most, n)
				}
				qt.Check(t, qt.Equals(most, peak.Bytes))
			}
		})
	}
}

// byLine sums up the bytes of a line.
func byLine(list []peakHolderSaid) map[int]peakHolderSaid {
	sums := make(map[int]peakHolderSaid)
	for _, h := range list {
		sum := sums[h.Line]
		sums[h.Line] = peakHolderSaid{Bytes: sum.Bytes + h.Bytes, Count: sum.Count + h.Count, Line: h.Line, Op: h.Op}
	}
	return sums
}

// recordUntil records peak_first.py, which goes on after its peak, until a condition holds.
func recordUntil(t *testing.T, env *rig.Env, board rig.Board, dir string, flags []string, so func() bool) {
	t.Helper()
	under := env.Command(t.Context(), board, program(t, "peak_first.py"))
	args := append(append([]string{"run"}, flags...), "--", under.Path)
	cmd := exec.Command(ttmem, append(args, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(under.Env, board, dir), dir
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill() })
	waitFor(t, "the recording", so)
	qt.Assert(t, qt.IsNil(in.Close()))
	qt.Assert(t, qt.IsNil(cmd.Wait()), qt.Commentf("%s", &said))
}

// The newest file of a recording has the highest peak of all its files, with the buffers of that
// peak.
func TestPeakOfRotatedRecording(t *testing.T) {
	t.Parallel()
	dir, env := t.TempDir(), setup(t, "0.81.1", "3.10")
	file := filepath.Join(dir, "model.ttmem")
	recordUntil(t, env, "n150", dir, []string{"-o", file, "--max-size", "64KiB", "--keep", "3"}, func() bool {
		_, err := os.Stat(file + ".2") // the peak is in it, or in one that was before it
		return err == nil
	})

	file += ".1" // the newest may have no more than the end of the program
	out, errs, status := runTtmem(t, nil, "peak", file, "--json")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	var peaks peaksSaid
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &peaks)))
	checkpoints := readCheckpoints(t, dir)
	qt.Assert(t, qt.HasLen(checkpoints, 2))
	dram := func(c checkpoint) uint64 { return c.Devices[0].Regions["DRAM"].AllocatedPerBank * 12 }
	qt.Assert(t, qt.Equals(len(peaks.Peaks), 1))
	peak := peaks.Peaks[0]
	qt.Check(t, qt.IsNil(peak.Earlier))
	qt.Check(t, qt.Equals(peak.Bytes, dram(checkpoints[0])))
	qt.Check(t, qt.IsTrue(peak.TimeNs < checkpoints[0].TimeNs))
	var bytes uint64
	for _, h := range peak.Holders {
		bytes += h.Bytes
	}
	qt.Check(t, qt.Equals(bytes, peak.Bytes))
}
