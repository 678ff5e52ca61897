package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestAllocatorsThatShareAddresses: a mesh and its submeshes assign the same addresses of a chip. The
// memory is in use once, and report, dump and map name both lines.
func TestAllocatorsThatShareAddresses(t *testing.T) {
	t.Parallel()
	lines := markedLines(t, program(t, "overlap.py"))
	for name, test := range map[string]struct {
		args []string
		// replicated and own are the bytes per bank of a buffer of the mesh and of the submesh.
		region          string
		replicated, own uint64
		overlaps        int
	}{
		"DRAM":          {[]string{"DRAM"}, "DRAM", 43 * 2048, 86 * 2048, 1},
		"L1":            {[]string{"L1"}, "L1", 8 * 2048, 16 * 2048, 1},
		"two submeshes": {[]string{"DRAM", "third"}, "DRAM", 43 * 2048, 86 * 2048, 3},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "overlap.ttmem")
			recordStoryOf(storyCommand{program: "overlap.py", args: test.args, board: "t3000"})(t, dir, file)

			out, errs, status := runTtmem(t, nil, "report", file, "--json")
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			type side struct {
				BytesPerBank uint64 `json:"bytes_per_bank"`
			}
			var report struct {
				Overlaps []struct {
					Devices        []int
					Region         string
					BytesPerBank   uint64 `json:"bytes_per_bank"`
					Earlier, Later side
				}
			}
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &report)))
			qt.Assert(t, qt.HasLen(report.Overlaps, test.overlaps), qt.Commentf("%s", out))
			first := report.Overlaps[0]
			qt.Check(t, qt.DeepEquals(first.Devices, []int{6}))
			qt.Check(t, qt.Equals(first.Region, test.region))
			qt.Check(t, qt.DeepEquals([]uint64{first.BytesPerBank, first.Earlier.BytesPerBank, first.Later.BytesPerBank},
				[]uint64{test.replicated, test.replicated, test.own}))

			for _, args := range [][]string{{"report", file}, {"dump", file, "--at", "peak"}, {"map", file, "--at", "peak"}, {"peak", file}} {
				out, errs, status := runTtmem(t, nil, args...)
				qt.Check(t, qt.Equals(status, 0))
				for _, want := range []string{test.region + " of chip 6 is assigned twice", fmt.Sprintf("overlap.py:%d", lines["replicated"]), fmt.Sprintf("overlap.py:%d", lines["own"])} {
					qt.Check(t, qt.StringContains(out+errs, want), qt.Commentf("%v", args))
				}
			}

			out, errs, status = runTtmem(t, nil, "map", file, "--at", "peak", "--region", test.region, "--chip", "6", "--json")
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			var drawn struct{ Regions []mapRegionSaid }
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &drawn)))
			qt.Assert(t, qt.HasLen(drawn.Regions, 1))
			r := drawn.Regions[0]
			qt.Check(t, qt.Equals(r.Free.Bytes, r.End-r.Start-3*test.own))
		})
	}
}
