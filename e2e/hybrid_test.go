package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/cores"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// corePlace is x, y, address and bytes of a part of a buffer, by the library's account.
type corePlace [4]uint64

func readCorePlaces(t *testing.T, dir string) map[string][]corePlace {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cores.jsonl"))
	qt.Assert(t, qt.IsNil(err))
	places := make(map[string][]corePlace)
	for line := range bytes.Lines(text) {
		var one struct {
			Name   string
			Placed []corePlace
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal(line, &one)))
		places[one.Name] = one.Placed
	}
	return places
}

// Buffers that the hybrid allocator places on single cores count for these cores alone, at
// the library's own addresses, in all views and after a checkpoint.
func TestHybridAllocator(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TTMEM_CORES", filepath.Join(dir, "cores.jsonl"))
	run := traceRun(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "hybrid.py"))
	qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
	qt.Check(t, qt.Equals(count(run.events, func(e *event.Event) bool { return e.Kind == event.Lost }), 0))
	want := readCorePlaces(t, dir)
	state := aggregate.New()
	next := 0
	for _, c := range readCheckpoints(t, run.dir) {
		for ; next < len(run.events) && run.events[next].TimeNs <= c.TimeNs; next++ {
			state.Apply(&run.events[next])
		}
		about := qt.Commentf("%s", c.Name)
		restored := aggregate.New()
		qt.Assert(t, qt.IsNil(restored.Restore(state.Checkpoint().State)), about)
		for _, s := range []*aggregate.State{state, restored} {
			assertHybrid(t, c.Name, s, want[c.Name], c.Devices[0].Regions["L1"])
		}
	}
	assertEnded(t, run.events)
}

func assertHybrid(t *testing.T, name string, s *aggregate.State, want []corePlace, view tracetest.MemoryView) {
	t.Helper()
	about := qt.Commentf("%s", name)
	var got []corePlace
	for _, b := range s.Buffers() {
		if !b.PerCore {
			continue
		}
		for _, r := range b.Cores() {
			for y := r.Y0; y <= r.Y1; y++ {
				for x := r.X0; x <= r.X1; x++ {
					got = append(got, corePlace{uint64(x), uint64(y), b.Address, b.BytesPerBank})
				}
			}
		}
	}
	load := make(map[cores.Core]uint64)
	for i, p := range want {
		core := cores.Core{X: uint16(p[0]), Y: uint16(p[1])}
		load[core] += p[3]
		if p[3] == 8<<10 {
			want[i][2] = 0 // not the same on all cores
		}
	}
	order := func(a, b corePlace) int { return slices.Compare(a[:], b[:]) }
	slices.SortFunc(got, order)
	want = slices.SortedFunc(slices.Values(want), order)
	qt.Check(t, qt.DeepEquals(got, want), about)

	// of buffers in all banks, what the library's allocator counts; and the fullest core
	var most uint64
	for _, bytes := range load {
		most = max(most, bytes)
	}
	device := s.Snapshot().Devices[0]
	l1 := device.Regions.L1
	qt.Check(t, qt.Equals(l1.BytesPerBank, view.AllocatedPerBank+most), about)
	per := device.L1PerCore
	qt.Check(t, qt.Equals(per.BufferBytes, view.AllocatedPerBank+most), about)
	qt.Check(t, qt.Equals(per.BufferBytes+per.CBBytes+per.FreeBytes, per.CapacityBytes), about)

	space := s.Space(0, event.L1)
	qt.Check(t, qt.Equals(space.BytesPerBank, l1.BytesPerBank), about)
	if slices.ContainsFunc(want, func(p corePlace) bool { return p[2] == 0 }) {
		qt.Check(t, qt.IsFalse(space.Known()), about)
		qt.Check(t, qt.IsNil(l1.FreeSpace), about)
		return
	}
	qt.Assert(t, qt.IsNotNil(l1.FreeSpace), about)
	qt.Check(t, qt.Equals(*l1.FreeSpace, space.FreeSpace), about)
	// free is what no core has a buffer at
	var taken [][2]uint64 // from an address to another
	for _, b := range view.Blocks {
		taken = append(taken, [2]uint64{space.Start + b[0], space.Start + b[0] + b[1]})
	}
	for _, p := range want {
		taken = append(taken, [2]uint64{p[2], p[2] + p[3]})
	}
	slices.SortFunc(taken, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	free, end := view.BytesPerBank, uint64(0)
	for _, one := range taken {
		free -= max(one[1], end) - max(one[0], end)
		end = max(end, one[1])
	}
	qt.Check(t, qt.Equals(space.FreeBytesPerBank, free), about)
}
