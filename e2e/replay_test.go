package e2e

import (
	"fmt"
	"path/filepath"
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

// TestHarvestedBoards: what a program needs on a board with more or fewer cores is what a run there needs: of each region at
// most, and whether and where the last tensor fits.
func TestHarvestedBoards(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	for _, name := range []string{"whatif.py", "decode.py"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorded := traceOnce(t, env, rig.N150, program(t, name))
			for board, text := range map[rig.Board]string{rig.N150Of64: "n150:64", rig.N150Of80: "n150:80", rig.P150Of140: "p150:140", rig.P150: "p150"} {
				on, err := replay.ParseBoard(text)
				qt.Assert(t, qt.IsNil(err))
				changed := &replay.WhatIf{Changes: []replay.Change{replay.On(on)}}
				r, real := replay.New(changed), replay.New()
				var would, was replay.Verdict
				r.OnFailure = func(f *replay.Failure) { would = f.With(0) }
				real.OnFailure = func(*replay.Failure) { was = replay.Verdict{} }
				for i := range recorded.events {
					r.Apply(&recorded.events[i])
				}
				there, most := traceRun(t, env, board, program(t, name)).events, real.Most
				for i := range there {
					if e := &there[i]; e.Kind == event.Alloc && name == "whatif.py" { // the last one failed as recorded
						was, most = replay.Verdict{Fits: true, Address: e.Address}, real.Most
					}
					real.Apply(&there[i])
				}
				if !was.Fits {
					most = real.Most
				}
				about := qt.Commentf("%s on %s", name, text)
				qt.Check(t, qt.Equals(r.Whole(0), replay.Verdict{Fits: true}), about)
				qt.Check(t, qt.Equals(changed.Most, most), about)
				qt.Check(t, qt.Equals(would, was), about)
				t.Logf("%s on %s: %v, %v", name, text, changed.Most, would)
			}
		})
	}
}

// TestReplayBesideSingleCores: on a mesh of two chips, whose buffers on single cores are in an allocator of each chip.
func TestReplayBesideSingleCores(t *testing.T) {
	t.Setenv("TTMEM_CORES", filepath.Join(t.TempDir(), "cores.jsonl"))
	run := traceRun(t, setup(t, "0.81.1", "3.10"), rig.N300, program(t, "hybrid.py")) // which replays it
	qt.Check(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
}

// checkReplay replays the events of a program that was traced from its start: the model predicts each address and each failure,
// or has a reason that it names.
func checkReplay(t *testing.T, events []event.Event) {
	t.Helper()
	r := replay.New()
	r.OnFailure = func(f *replay.Failure) {
		qt.Check(t, qt.IsTrue(f.Doubt == "" || slices.Contains(doubts, f.Doubt)), qt.Commentf("%s: %s", f.Doubt, f.Event.Message))
	}
	// two threads may have the allocator's lock in another order than their events
	thread, several := make(map[int]int), make(map[int]bool)
	for i := range events {
		if e := &events[i]; e.Kind == event.Alloc || e.Kind == event.Free {
			several[e.PID] = several[e.PID] || thread[e.PID] != 0 && thread[e.PID] != e.TID
			thread[e.PID] = e.TID
		}
	}
	for i := range events {
		wrong := r.Counts[replay.NotPredicted]
		e := &events[i]
		r.Apply(e)
		qt.Check(t, qt.IsTrue(r.Counts[replay.NotPredicted] == wrong || several[e.PID]), qt.Commentf("%v at %#x, %s", e.Region, e.Address, name.Of(e.Stack.Frames())))
	}
	qt.Check(t, qt.Equals(r.Counts[replay.BeforeAttach]+r.Counts[replay.LostEvents], 0))
}

// doubts are the reasons for which failures of the traced programs are not predicted.
var doubts = []string{"some buffers are on single cores", "the operation makes a check of its own", "its allocator is not known"}
