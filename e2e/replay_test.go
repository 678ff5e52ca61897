package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// TestReplayOfRandomPrograms: the model of the allocator and the library agree on the address of each allocation of a
// random program, and on each allocation that fails.
func TestReplayOfRandomPrograms(t *testing.T) {
	t.Parallel()
	boards := []rig.Board{"n150", "p150"}
	if *tracetest.Long {
		boards = append(boards, "n300", "t3000")
	}
	for i, board := range boards {
		t.Run(string(board), func(t *testing.T) {
			t.Parallel()
			env := setup(t, "0.81.1", "3.10")
			steps := tracetest.Many(3000, 100000)
			run := traceRun(t, env, board, program(t, "random_allocations.py"), fmt.Sprint(i+1), fmt.Sprint(steps))
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			r := replay.New()
			r.OnFailure = func(f *replay.Failure) {
				qt.Check(t, qt.Equals(f.Doubt, ""), qt.Commentf("%s", f.Event.Message))
			}
			allocations, regions := uint64(0), make(map[event.Region]int)
			for i := range run.events {
				e := &run.events[i]
				if e.Kind == event.Alloc {
					allocations++
					regions[e.Region]++
				}
				r.Apply(e)
			}
			t.Logf("%d allocations, %d failures", allocations, r.Failures)
			qt.Check(t, qt.Equals(r.Counts[replay.Predicted], allocations), qt.Commentf("%v", r.Counts))
			qt.Check(t, qt.IsTrue(allocations > uint64(steps)/3))
			for _, region := range []event.Region{event.DRAM, event.L1, event.L1Small} {
				qt.Check(t, qt.IsTrue(regions[region] > steps/50), qt.Commentf("%v: %d", region, regions[region]))
			}
			qt.Check(t, qt.Equals(r.Failures, uint64(strings.Count(run.stderr, "refused: allocation: "))))
			qt.Check(t, qt.IsTrue(r.Failures > 0))
		})
	}
}

// checkReplay replays the events of a program that was traced from its start: the model predicts each address and each failure,
// or has a reason that it names.
func checkReplay(t *testing.T, events []event.Event) {
	t.Helper()
	r := replay.New()
	r.OnFailure = func(f *replay.Failure) {
		qt.Check(t, qt.IsTrue(f.Doubt == "" || slices.Contains(doubts, f.Doubt)), qt.Commentf("%s: %s", f.Doubt, f.Event.Message))
	}
	for i := range events {
		wrong := r.Counts[replay.NotPredicted]
		e := &events[i]
		r.Apply(e)
		qt.Check(t, qt.Equals(r.Counts[replay.NotPredicted], wrong), qt.Commentf("%v at %#x, %s", e.Region, e.Address, name.Of(e.Stack.Frames())))
	}
	qt.Check(t, qt.Equals(r.Counts[replay.BeforeAttach]+r.Counts[replay.LostEvents], 0))
}

// doubts are the reasons for which failures of the traced programs are not predicted.
var doubts = []string{"some buffers are on single cores", "the operation makes a check of its own", "its allocator is not known"}
