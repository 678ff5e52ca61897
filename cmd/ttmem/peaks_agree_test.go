package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/dump"
	"ttmem/cmd/ttmem/internal/page/memmap"
)

// A shownPeak is what a command says of the peak of a region of a chip.
type shownPeak struct {
	TimeNs, Bytes uint64
}

type shownPeaks map[chipRegion]shownPeak

type chipRegion struct {
	device int
	region string
}

// TestPeaksAgree: `peak`, `dump --at peak`, `map --at peak`, `report` and a
// step as long as the program name the same moment and the same bytes for the peak of each
// region of each chip, on the recordings of all stories.
func TestPeaksAgree(t *testing.T) {
	root, err := filepath.Abs(goldenFolder)
	qt.Assert(t, qt.IsNil(err))
	t.Chdir(t.TempDir())
	compared := 0
	for _, s := range goldenStories {
		story := readStory(t, storyEvents(root, s.name))
		story.record(t, s.name+".ttmem", 0)
		t.Run(s.name, func(t *testing.T) {
			file := s.name + ".ttmem"
			want, buffers, statics := peaksOfPeak(t, file)
			qt.Check(t, qt.DeepEquals(peaksOfReport(t, file), want), qt.Commentf("report"))
			dumped, perBank, dumpedStatics := peaksOfDump(t, file)
			// the rows of dump count what several allocators assigned each time
			if s.name != "mesh" && s.name != "crowd" {
				qt.Check(t, qt.DeepEquals(dumped, buffers), qt.Commentf("dump"))
			}
			qt.Check(t, qt.DeepEquals(dumpedStatics, statics), qt.Commentf("circular buffers of dump"))
			qt.Check(t, qt.DeepEquals(peaksOfMap(t, file), perBank), qt.Commentf("map"))
			qt.Check(t, qt.DeepEquals(peaksOfStep(t, story), want), qt.Commentf("a step"))
			checkOperations(t, file, want, statics)
			compared += len(want)
		})
	}
	qt.Check(t, qt.IsTrue(compared > 30), qt.Commentf("%d peaks", compared))
}

// checkOperations checks that no operation had more of L1 than the peak, and that one had as much if a
// program ran at the peak.
func checkOperations(t *testing.T, file string, peaks shownPeaks, statics map[int]uint64) {
	t.Helper()
	var d struct {
		Operations []struct {
			Peak struct {
				Device int
				Bytes  uint64
			}
		}
	}
	jsonOf(t, &d, "ops", "--json", "-n", "0", file)
	most := make(map[int]uint64)
	for _, op := range d.Operations {
		most[op.Peak.Device] = max(most[op.Peak.Device], op.Peak.Bytes)
	}
	for id, bytes := range most {
		qt.Check(t, qt.IsTrue(bytes <= peaks[chipRegion{id, "L1"}].Bytes), qt.Commentf("chip %d: an operation has %d, the peak %d", id, bytes, peaks[chipRegion{id, "L1"}].Bytes))
	}
	if len(statics) == 1 { // an operation of a mesh names one of its chips
		for id := range statics {
			qt.Check(t, qt.Equals(most[id], peaks[chipRegion{id, "L1"}].Bytes))
		}
	}
}

func jsonOf(t *testing.T, to any, args ...string) {
	t.Helper()
	out, _, status := runOnStreams(t, false, args)
	qt.Assert(t, qt.Equals(status, 0))
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), to)))
}

// peaksOfPeak also gives the part that is buffers, and what circular buffers take.
func peaksOfPeak(t *testing.T, file string) (all, buffers shownPeaks, statics map[int]uint64) {
	t.Helper()
	var d peakDocument
	jsonOf(t, &d, "peak", "--json", file)
	all, buffers, statics = make(shownPeaks), make(shownPeaks), make(map[int]uint64)
	for _, p := range d.Peaks {
		for _, id := range p.Devices {
			at := chipRegion{id, p.Region}
			all[at] = shownPeak{p.TimeNs, p.Bytes}
			if p.Bytes > p.StaticBytes {
				buffers[at] = shownPeak{p.TimeNs, p.Bytes - p.StaticBytes}
			}
			if p.StaticBytes > 0 {
				statics[id] = p.StaticBytes
			}
		}
	}
	return all, buffers, statics
}

func peaksOfReport(t *testing.T, file string) shownPeaks {
	t.Helper()
	var snap memory.Snapshot
	jsonOf(t, &snap, "report", "--json", file)
	peaks := make(shownPeaks)
	for i := range snap.Devices {
		d := &snap.Devices[i]
		for _, region := range page.Regions {
			r := d.Regions.Banked(region)
			peak := shownPeak{r.PeakTimeNs, r.PeakBytes}
			if region.String() == "L1" {
				peak = shownPeak{d.L1PerCore.Peak.TimeNs, d.L1PerCore.Peak.BufferBytes + d.L1PerCore.Peak.CBBytes}
			}
			if peak.Bytes > 0 {
				peaks[chipRegion{d.ID, region.String()}] = peak
			}
			capacity := page.UseOf(d, region).CapacityBytes
			qt.Check(t, qt.IsTrue(capacity == 0 || peak.Bytes <= max(capacity, r.PeakCapacityBytes)), qt.Commentf("chip %d, %s: more than there is", d.ID, region))
			qt.Check(t, qt.IsTrue(capacity == 0 || r.AllocatedBytes <= r.CapacityBytes), qt.Commentf("chip %d, %s", d.ID, region))
		}
	}
	return peaks
}

// dumped is what tests read of the document of `ttmem dump`.
type dumped struct {
	Moments []dump.Moment
	Buffers []struct {
		PID            int
		Devices        []int
		Region         string
		SinceNs        uint64  `json:"since_ns"`
		AgeNs          *uint64 `json:"age_ns"`
		BytesPerBank   uint64  `json:"bytes_per_bank"`
		AllocatedBytes uint64  `json:"allocated_bytes"`
	}
	Statics []struct {
		PID          int
		Devices      []int
		Global       bool
		Address      uint64
		BytesPerCore uint64 `json:"bytes_per_core"`
		Cores        [][4]uint16
	}
}

// inRegion are the bytes that a buffer counts in the peak of its region.
func inRegion(region string, perBank, allocated uint64) uint64 {
	if region == "L1" {
		return perBank
	}
	return allocated
}

// peaksOfDump are those of buffers, in all and of one bank, and what circular buffers take
// of the core where they take most.
func peaksOfDump(t *testing.T, file string) (buffers, perBank shownPeaks, statics map[int]uint64) {
	t.Helper()
	var d dumped
	jsonOf(t, &d, "dump", "--at", "peak", "--json", file)
	buffers, perBank, statics = make(shownPeaks), make(shownPeaks), make(map[int]uint64)
	for _, b := range d.Buffers {
		for _, id := range b.Devices {
			at := chipRegion{id, b.Region}
			time := listedAt(&d, at)
			if b.AgeNs != nil { // those from before the attach have none
				qt.Check(t, qt.Equals(b.SinceNs+*b.AgeNs, time))
			}
			buffers[at] = shownPeak{time, buffers[at].Bytes + inRegion(b.Region, b.BytesPerBank, b.AllocatedBytes)}
			perBank[at] = shownPeak{time, perBank[at].Bytes + b.BytesPerBank}
		}
	}
	type core struct {
		device int
		x, y   uint16
	}
	taken := make(map[core][][2]uint64)
	for _, s := range d.Statics {
		if s.Global {
			continue
		}
		for _, id := range s.Devices {
			for _, r := range s.Cores {
				for x := r[0]; x <= r[2]; x++ {
					for y := r[1]; y <= r[3]; y++ {
						taken[core{id, x, y}] = append(taken[core{id, x, y}], [2]uint64{s.Address, s.Address + s.BytesPerCore})
					}
				}
			}
		}
	}
	for at, places := range taken {
		slices.SortFunc(places, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
		var sum, end uint64
		for _, p := range places {
			sum += max(p[1], end) - max(p[0], end)
			end = max(p[1], end)
		}
		statics[at.device] = max(statics[at.device], sum)
	}
	maps.DeleteFunc(statics, func(_ int, bytes uint64) bool { return bytes == 0 })
	return buffers, perBank, statics
}

// listedAt is when a region of a chip is listed.
func listedAt(d *dumped, at chipRegion) uint64 {
	for _, m := range d.Moments {
		if slices.Contains(m.Devices, at.device) && slices.Contains(m.Regions, at.region) {
			return m.TimeNs
		}
	}
	return 0
}

// peaksOfMap are those of buffers, of one bank.
func peaksOfMap(t *testing.T, file string) shownPeaks {
	t.Helper()
	var d memmap.Document
	jsonOf(t, &d, "map", "--at", "peak", "--json", file)
	peaks := make(shownPeaks)
	for _, r := range d.Regions {
		for _, id := range r.Devices {
			at := chipRegion{id, r.Region}
			for _, b := range r.Blocks {
				peaks[at] = shownPeak{r.TimeNs, peaks[at].Bytes + b.BytesPerBank}
			}
		}
	}
	return peaks
}
