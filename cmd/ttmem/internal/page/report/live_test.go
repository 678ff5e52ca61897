package report

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
)

// TestBarsOfWhatGoesOnAreOfNow: those of what is over are of the peaks.
func TestBarsOfWhatGoesOnAreOfNow(t *testing.T) {
	for live, want := range map[bool][]string{
		true: {
			" DRAM          #...............  <1%  12.0 MiB of 12.0 GiB, peak 11.7 GiB\n",
			" L1 per core   ................   0%  0 B of 1328.7 KiB, peak 1200.0 KiB\n",
			"     PID  state        DRAM now        peak   L1/core now        peak\n       7  running      12.0 MiB    11.7 GiB           0 B  1200.0 KiB\n",
		},
		false: {
			" DRAM          #########.  98%  11.7 GiB of 12.0 GiB, 12.0 MiB at the end\n",
			" L1 per core   .#########  90%  1200.0 KiB of 1328.7 KiB, 0 B at the end\n",
			"     PID  state       DRAM peak  at the end  L1/core peak  at the end\n       7  running      11.7 GiB    12.0 MiB    1200.0 KiB         0 B\n",
		},
	} {
		text := reportText(t, pagetest.Emptied(), options{Options: Options{Live: live}})
		for _, line := range want {
			qt.Check(t, qt.StringContains(text, line))
		}
	}
	// where there is room for one, it is what there is now
	text := reportText(t, pagetest.Emptied(), options{Options: Options{Live: true}, Width: 60})
	qt.Check(t, qt.StringContains(text, "     PID  state        DRAM now   L1/core now\n       7  running      12.0 MiB           0 B\n"))
}

// Stacks of more than 128 frames lack nothing useful if all Python frames are known.
func TestStacksWithAllPythonFramesAreNotWarnedOf(t *testing.T) {
	s := pagetest.Emptied().State.Snapshot()
	s.Stacks = &memory.Stacks{Incomplete: map[string]uint64{allPython: 844, "more than 128 frames": 3}}
	var b strings.Builder
	qt.Assert(t, qt.IsNil(write(&b, s, page.Layout{Painter: page.Painter{ASCII: true}, Width: 200}, Options{State: aggregate.New()})))
	qt.Check(t, qt.StringContains(b.String(), "note: call stacks that end early: more than 128 frames: 3\n"))
	qt.Check(t, qt.Not(qt.StringContains(b.String(), "844")))
}

func TestStacksOfTheFirstMomentsAreExplained(t *testing.T) {
	s := pagetest.Emptied().State.Snapshot()
	s.Stacks = &memory.Stacks{Incomplete: map[string]uint64{unknownProcess: 15, "other": 2}}
	var b strings.Builder
	qt.Assert(t, qt.IsNil(write(&b, s, page.Layout{Painter: page.Painter{ASCII: true}, Width: 200}, Options{State: aggregate.New()})))
	qt.Check(t, qt.StringContains(strings.Join(strings.Fields(b.String()), " "),
		"note: call stacks that end early: other: 2 note: call stacks that end early: process not known yet (before its code was read, or while it unloads a library): 15"))
}
