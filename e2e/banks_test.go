package e2e

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// TestFullnessCountsBanks: the allocator reserves a buffer's bytes in every bank of its region, however
// few have its data, and ttmem's use, also as a total, is what the library's memory view has.
func TestFullnessCountsBanks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version string
		board   rig.Board
	}{
		{"0.81.1", "n150"}, {"0.81.1", "p150"}, {"0.76.0", "n150"}, {"0.66.0", "n150"},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			t.Parallel()
			run := traceRun(t, setup(t, c.version, "3.10"), c.board, program(t, "banks.py"))
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			checkpoints := readCheckpoints(t, run.dir)
			qt.Check(t, qt.IsTrue(len(checkpoints) > 20), qt.Commentf("%d", len(checkpoints)))
			assertEqual(t, run.events, checkpoints)
		})
	}
}

// TestThePeakOfL1IsAStateThatWas: cached programs take nothing beside later tensors, and a run that the
// library refuses does not count. layer_norm needs 636 KiB of a core, relu 8 KiB, and each tensor 16 KiB
// of each bank.
func TestThePeakOfL1IsAStateThatWas(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	for _, c := range []struct {
		args            []string
		buffers, static uint64 // KiB
	}{
		{[]string{"20"}, 0, 636},
		{[]string{"41"}, 41 * 16, 8},
		{[]string{"80", "refused"}, 80 * 16, 8},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			t.Parallel()
			run := traceRun(t, env, "n150", append([]string{program(t, "cached_peak.py")}, c.args...)...)
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			s := aggregate.New()
			for i := range run.events {
				s.Apply(&run.events[i])
			}
			var l1 memory.RegionPeak
			for _, p := range s.RegionPeaks() {
				if p.Region == event.L1 {
					l1 = p
				}
			}
			qt.Check(t, qt.Equals((l1.Bytes-l1.StaticBytes)>>10, c.buffers))
			qt.Check(t, qt.Equals(l1.StaticBytes>>10, c.static))
			qt.Check(t, qt.IsFalse(l1.AtLeast))
		})
	}
}
