package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/addresses"
	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// long runs the long forms of tests.
var long = flag.Bool("long", false, "run the long forms of tests")

// TestEquality: what ttmem rebuilds from events equals what the library's own
// allocator counts, byte for byte, at 50 checkpoints of a program that does
// everything.
func TestEquality(t *testing.T) {
	for _, c := range []struct {
		version, python string
		board           rig.Board
	}{
		{"0.81.1", "3.10", "n150"},
		{"0.81.1", "3.12", "n300"},
		{"0.81.1", "3.10", "t3000"},
		{"0.81.1", "3.10", "galaxy"},
		{"0.81.1", "3.12", "p150"},
		{"0.80.0", "3.10", "n150"}, // in no table of layouts
		{"0.76.0", "3.10", "n150"},
		{"0.76.0", "3.10", "n300"},
		{"0.76.0", "3.10", "t3000"},
		{"0.72.0", "3.10", "n150"},
		{"0.72.0", "3.10", "n300"},
		{"0.72.0", "3.10", "t3000"},
		{"0.68.0", "3.10", "n150"},
		{"0.68.0", "3.10", "n300"},
		{"0.68.0", "3.10", "t3000"},
	} {
		t.Run(c.version+"/python"+c.python+"/"+string(c.board), func(t *testing.T) {
			assertMixEqual(t, c.version, c.python, c.board)
		})
	}
}

// assertMixEqual runs the program that does everything.
func assertMixEqual(t *testing.T, version, python string, board rig.Board) {
	t.Helper()
	run := traceRun(t, setup(t, version, python), board, program(t, "mix.py"))
	t.Log(run.stderr)
	qt.Assert(t, qt.Equals(run.status, 0))
	checkpoints := readCheckpoints(t, run.dir)
	qt.Assert(t, qt.HasLen(checkpoints, 50))
	assertEqual(t, run.events, checkpoints)
	qt.Check(t, qt.Equals(count(run.events, func(e *event.Event) bool { return e.Kind == event.Lost }), 0))
	assertEnded(t, run.events)
	failed := 0
	for _, e := range run.events {
		if e.Kind == event.AllocFailed {
			failed++
			qt.Check(t, qt.Equals(e.Reason, event.ReasonOutOfMemory))
			qt.Check(t, qt.Equals(e.SizeBytes, 1<<31))
			qt.Check(t, qt.DeepEquals(e.Devices, checkpoints[0].Devices[0].Chips))
			qt.Check(t, qt.StringContains(e.Message, fmt.Sprintf("needs to store %d B", e.BytesPerBank)))
		}
	}
	qt.Check(t, qt.Equals(failed, 1))
}

// A mesh and its submeshes have an allocator each, which allocate the same memory. Each is
// counted by itself.
func TestEqualityOfSubmeshes(t *testing.T) {
	run := traceRun(t, setup(t, "0.81.1", "3.10"), "t3000", program(t, "submesh.py"))
	qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
	state := aggregate.New()
	next, compared := 0, 0
	var open []event.Event
	for _, c := range readCheckpoints(t, run.dir) {
		for ; next < len(run.events) && run.events[next].TimeNs <= c.TimeNs; next++ {
			state.Apply(&run.events[next])
			if run.events[next].Kind == event.DeviceOpen {
				open = append(open, run.events[next])
			}
		}
		for _, d := range c.Devices {
			i := slices.IndexFunc(open, func(e event.Event) bool { return slices.Equal(e.Devices, d.Chips) })
			qt.Assert(t, qt.IsTrue(i >= 0), qt.Commentf("chips %v", d.Chips))
			for name, want := range d.Regions {
				space := state.AllocatorSpace(open[i].PID, open[i].Allocator, regions[name])
				assertSpace(t, fmt.Sprintf("%s: chips %v %s", c.Name, d.Chips, name), space, memory.Region{FreeSpace: &space.FreeSpace}, want)
				compared++
			}
		}
	}
	qt.Check(t, qt.Equals(compared, 7*3*4))
}

// assertSpace compares the addresses of a region's buffers and holes with the library's own
// list of blocks.
func assertSpace(t *testing.T, where string, space *memory.Space, got memory.Region, want memoryView) {
	t.Helper()
	if want.BytesPerBank == 0 {
		return // the region does not exist
	}
	if got.FreeSpace == nil || space == nil || !space.Known() {
		t.Errorf("%s: what is free is not known", where)
		return
	}
	view := addresses.FreeSpace{FreeBytesPerBank: want.Free, LargestFreeBytesPerBank: want.LargestFree}
	if *got.FreeSpace != view || space.FreeSpace != view {
		t.Errorf("%s: free %+v, and %+v in the list of addresses; the library counts %+v", where, *got.FreeSpace, space.FreeSpace, view)
	}
	if want.Blocks == nil {
		return
	}
	var blocks [][2]uint64
	for _, b := range space.Blocks {
		blocks = append(blocks, [2]uint64{b.Address - space.Start, b.BytesPerBank})
	}
	slices.SortFunc(want.Blocks, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	if !slices.Equal(blocks, want.Blocks) {
		t.Errorf("%s: blocks %v, the library has %v", where, blocks, want.Blocks)
	}
}

// assertEnded checks that nothing is live after a program closed its device and ended.
func assertEnded(t *testing.T, events []event.Event) {
	t.Helper()
	live := map[[2]uint64]bool{}
	programs := map[uint64]bool{}
	for _, e := range events {
		switch e.Kind {
		case event.Alloc:
			live[[2]uint64{uint64(e.PID), e.BufferID}] = true
		case event.Free:
			delete(live, [2]uint64{uint64(e.PID), e.BufferID})
		case event.CBAlloc:
			programs[e.ProgramID] = true
		case event.CBFree:
			delete(programs, e.ProgramID)
		}
	}
	qt.Check(t, qt.HasLen(live, 0))
	qt.Check(t, qt.HasLen(programs, 0))
	qt.Check(t, qt.Equals(events[len(events)-1].Kind, event.ProcessExit))
}
