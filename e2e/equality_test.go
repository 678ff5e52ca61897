package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// TestEquality: what ttmem rebuilds from events equals what the library's own
// allocator counts, byte for byte, at 50 checkpoints of a program that does
// everything.
func TestEquality(t *testing.T) {
	t.Parallel()
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
		if !tracetest.Tests(c.version) || c.board == "n300" && c.version != rig.DefaultVersion && !*tracetest.Long {
			continue
		}
		t.Run(c.version+"/python"+c.python+"/"+string(c.board), func(t *testing.T) {
			t.Parallel()
			assertMixEqual(t, traceOnce(t, setup(t, c.version, c.python), c.board, program(t, "mix.py")))
		})
	}
}

// assertMixEqual compares a run of the program that does everything.
func assertMixEqual(t *testing.T, run traced) {
	t.Helper()
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
	t.Parallel()
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
				space := state.AllocatorSpace(open[i].PID, open[i].Allocator, tracetest.Regions[name])
				for _, difference := range want.SpaceDifferences(&space.FreeSpace, space) {
					t.Errorf("%s: chips %v %s: %s", c.Name, d.Chips, name, difference)
				}
				compared++
			}
		}
	}
	qt.Check(t, qt.Equals(compared, 7*3*4))
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
	last := events[len(events)-1]
	qt.Check(t, qt.Equals(last.Kind, event.ProcessExit), qt.Commentf("%+v", last))
}
