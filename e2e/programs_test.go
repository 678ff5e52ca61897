package e2e

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// Each program is reported with its circular or dataflow buffers and its kernels, and ends
// when the program cache is cleared or the device closed.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version string
		board   rig.Board
		chips   int
		text    bool // the mock reports the size of the kernels' text
		global  bool // ops on shards use circular buffers, not dataflow buffers
	}{
		{"0.81.1", "n150", 1, true, false},
		{"0.81.1", "t3000", 8, true, false},
		{"0.76.0", "n150", 1, false, true},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			t.Parallel()
			run := traceOnce(t, setup(t, c.version, "3.10"), c.board, program(t, "mix.py"))
			buffers, kernels, kinds := map[uint64]int{}, map[uint64]int{}, map[event.StaticKind]int{}
			var cleared, compiledAgain uint64
			for _, p := range readCheckpoints(t, run.dir) {
				switch p.Name {
				case "program cache cleared":
					cleared = p.TimeNs
				case "compiled again":
					compiledAgain = p.TimeNs
				}
			}
			state := aggregate.New()
			seenCleared, global := false, 0
			for _, e := range run.events {
				if e.TimeNs > cleared && !seenCleared {
					seenCleared = true
					for _, d := range state.Snapshot().Devices {
						qt.Check(t, qt.Equals(d.Regions.CB.Programs, 0), qt.Commentf("chip %d", d.ID))
					}
				}
				state.Apply(&e)
				switch e.Kind {
				case event.CBAlloc:
					buffers[e.ProgramID]++
					kinds[e.StaticKind]++
					if e.Global {
						global++
						qt.Check(t, qt.IsTrue(inBuffer(state, e)), qt.Commentf("%+v", e))
					}
					qt.Check(t, qt.IsTrue(len(e.Cores) > 0 && e.SizeBytes > 0 && e.Address > 1<<16))
				case event.KernelLoad:
					kernels[e.ProgramID]++
					qt.Check(t, qt.HasLen(e.Devices, c.chips))
					qt.Check(t, qt.Equals(e.KernelKind, event.WorkerKernels))
					qt.Check(t, qt.Equals(e.BytesPerBank > 0, c.text))
					qt.Check(t, qt.IsTrue(e.TimeNs < cleared || e.TimeNs < compiledAgain))
				case event.KernelUnload:
					kernels[e.ProgramID]--
				}
			}
			t.Logf("%d programs, static buffers by kind: %v", len(buffers), kinds)
			qt.Check(t, qt.IsTrue(len(buffers) >= 6), qt.Commentf("%d programs", len(buffers)))
			for id := range buffers { // a program may have no buffers, but has kernels
				qt.Check(t, qt.IsTrue(kernels[id] == 0), qt.Commentf("program %d: kernels are left", id))
				_, loaded := kernels[id]
				qt.Check(t, qt.IsTrue(loaded), qt.Commentf("program %d: no kernels", id))
			}
			qt.Check(t, qt.IsTrue(kinds[event.CircularBuffer] > 0))
			qt.Check(t, qt.Equals(global > 0, c.global))
			if c.version == "0.81.1" { // Metal 2.0's ops
				qt.Check(t, qt.IsTrue(kinds[event.DataflowBuffer] > 0))
			}
		})
	}
}

// inBuffer reports whether a circular buffer lies in a live L1 buffer.
func inBuffer(state *aggregate.State, cb event.Event) bool {
	for _, b := range state.BuffersOf(cb.PID) {
		if b.Region == event.L1 && b.Address <= cb.Address && cb.Address+cb.SizeBytes <= b.Address+b.BytesPerBank {
			return true
		}
	}
	return false
}

// When devices are closed and opened again, each circular buffer is reported once for each
// chip of the mesh, wherever the library put its objects.
func TestReopened(t *testing.T) {
	t.Parallel()
	run := traceRun(t, setup(t, "0.81.1", "3.10"), "t3000", program(t, "reopen.py"))
	qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
	type place struct{ program, address uint64 }
	chips := map[place]map[int]int{}
	opened := 0
	for _, e := range run.events {
		switch e.Kind {
		case event.DeviceOpen:
			opened++
		case event.CBAlloc:
			at := place{e.ProgramID, e.Address}
			if chips[at] == nil {
				chips[at] = map[int]int{}
			}
			for _, chip := range e.Devices {
				chips[at][chip]++
			}
		}
	}
	qt.Check(t, qt.IsTrue(opened >= 4))
	qt.Check(t, qt.IsTrue(len(chips) >= 4), qt.Commentf("%v", chips))
	for at, count := range chips {
		qt.Check(t, qt.HasLen(count, 8), qt.Commentf("%+v: %v", at, count))
		for chip, n := range count {
			qt.Check(t, qt.Equals(n, 1), qt.Commentf("%+v: chip %d", at, chip))
		}
	}
	assertEnded(t, run.events)
}
