package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

type mapBlockSaid struct {
	Address uint64
	PerBank uint64 `json:"bytes_per_bank"`
	Name    string
}

// mapRegionSaid is a region of `ttmem map --json`.
type mapRegionSaid struct {
	Devices []int
	Region  string
	Banks   uint32
	Start   uint64 `json:"start_address"`
	End     uint64 `json:"end_address"`
	Free    struct {
		Bytes   uint64 `json:"free_bytes_per_bank"`
		Largest uint64 `json:"largest_free_bytes_per_bank"`
	}
	Blocks  []mapBlockSaid
	Statics []struct {
		Address uint64
		PerCore uint64 `json:"bytes_per_core"`
		Name    string
	}
}

func mapSaid(t *testing.T, args ...string) map[string]mapRegionSaid {
	t.Helper()
	out, errs, status := runTtmem(t, nil, append([]string{"map", "--json"}, args...)...)
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	var doc struct{ Regions []mapRegionSaid }
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &doc)))
	said := make(map[string]mapRegionSaid)
	for _, r := range doc.Regions {
		qt.Check(t, qt.DeepEquals(r.Devices, []int{0}))
		said[r.Region] = r
	}
	return said
}

// At each checkpoint of a real program the map has the blocks of the library's own
// allocator, and its free memory.
func TestMap(t *testing.T) {
	t.Parallel()
	file, dir := recordStory(t, 20)
	at := markedLines(t, program(t, "log_story.py"))
	begin := logLines(t, file)[0].TimeNs
	compared := 0
	for _, c := range readCheckpoints(t, dir) {
		said := mapSaid(t, file, "--at", fmt.Sprintf("%dns", c.TimeNs-begin), "--region", "DRAM,L1,L1_SMALL")
		for _, name := range []string{"DRAM", "L1", "L1_SMALL"} {
			want, got := c.Devices[0].Regions[name], said[name]
			qt.Check(t, qt.Equals(got.Banks, want.Banks))
			qt.Check(t, qt.Equals(got.End-got.Start, want.BytesPerBank))
			qt.Check(t, qt.Equals(got.Free.Bytes, want.Free), qt.Commentf("%s: free of %s", c.Name, name))
			qt.Check(t, qt.Equals(got.Free.Largest, want.LargestFree), qt.Commentf("%s: largest of %s", c.Name, name))
			blocks := [][2]uint64{}
			for _, b := range got.Blocks {
				blocks = append(blocks, [2]uint64{b.Address - got.Start, b.PerBank})
			}
			slices.SortFunc(want.Blocks, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
			qt.Check(t, qt.DeepEquals(blocks, want.Blocks), qt.Commentf("%s: %s", c.Name, name))
			compared += len(want.Blocks)
		}
		if c.Name == "holed" {
			statics := said["L1"].Statics
			qt.Assert(t, qt.IsTrue(len(statics) > 0))
			qt.Check(t, qt.Equals(statics[0].Address, said["L1"].Start))
			qt.Check(t, qt.Matches(statics[0].Name, fmt.Sprintf(`.* log_story\.py:%d .* · ttnn\.relu`, at["relu"])))
			qt.Check(t, qt.StringContains(said["L1"].Blocks[0].Name, fmt.Sprintf("log_story.py:%d", at["l1"])))
		}
	}
	t.Logf("%d blocks compared", compared)
	qt.Check(t, qt.IsTrue(compared > 20))

	out, errs, status := runTtmem(t, nil, "map", file, "--at", "peak", "-n", "0")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, fmt.Sprintf("log_story.py:%d step", at["leak"])))

	out, _, _ = runTtmem(t, nil, "map", file, "--at", "end")
	qt.Check(t, qt.StringContains(out, "--at peak"))
	qt.Check(t, qt.IsTrue(strings.HasPrefix(out, "Nothing is allocated")))
}

// A map needs no recording.
func TestMapOfRunningProgram(t *testing.T) {
	t.Parallel()
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "dump.py"))
	p.expect(t, "holding")
	out, errs, status := runTtmem(t, nil, "map", "-p", fmt.Sprint(p.Process.Pid), "--json", "--region", "DRAM")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	var doc struct{ Regions []mapRegionSaid }
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &doc)))
	qt.Assert(t, qt.HasLen(doc.Regions, 1))
	points := readCheckpoints(t, p.Dir)
	want := points[len(points)-1].Devices[0].Regions["DRAM"]
	qt.Check(t, qt.HasLen(doc.Regions[0].Blocks, len(want.Blocks)))
	qt.Check(t, qt.Equals(doc.Regions[0].Free.Bytes, want.Free))
}

// `ttmem map --at peak` has the moment and the figures of `ttmem peak`: for a program that has only
// circular buffers in L1, and for one that also has buffers before and after them.
func TestMapAtPeakHasCircularBuffers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"story_peak.py", "demo.py"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := recorded(t, t.TempDir(), "peak", program(t, name))
			var peak struct {
				Peaks []struct {
					Region string
					Bytes  uint64
					Static uint64 `json:"static_bytes"`
				}
			}
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(ask(t, "peak", file, "--region", "L1", "--json")), &peak)))
			qt.Assert(t, qt.HasLen(peak.Peaks, 1))
			l1 := mapSaid(t, file, "--at", "peak", "--region", "L1")["L1"]
			var buffers, end uint64
			for _, b := range l1.Blocks {
				buffers += b.PerBank
			}
			qt.Check(t, qt.Equals(buffers, peak.Peaks[0].Bytes-peak.Peaks[0].Static))
			for _, s := range l1.Statics {
				end = max(end, s.Address+s.PerCore)
			}
			// they are adjacent from the beginning of L1 on
			qt.Check(t, qt.Equals(end-l1.Start, peak.Peaks[0].Static))
			qt.Check(t, qt.IsTrue(peak.Peaks[0].Static > 0))
		})
	}
}
