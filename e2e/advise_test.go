package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/advise"
	"ttmem/aggregate/name"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// TestNothingIsAccused that is used again, such as weights, caches, states of the next iteration, and results that the host
// reads: of each program of judged.py, the lines with BAD are accused, and no others.
func TestNothingIsAccused(t *testing.T) {
	t.Parallel()
	for _, on := range []struct {
		version string
		board   rig.Board
		long    bool
	}{{"0.81.1", "n150", false}, {"0.81.1", "p150", true}, {"0.81.1", "t3000", true}, {"0.76.0", "n150", true}, {"0.72.0", "n150", true}} {
		if tracetest.Tests(on.version) && (!on.long || *tracetest.Long) {
			t.Run(on.version+" "+string(on.board), func(t *testing.T) {
				t.Parallel()
				checkJudged(t, traceRun(t, setup(t, on.version, "3.10"), on.board, program(t, judged)))
			})
		}
	}
}

// judged is the program whose programs are judged.
const judged = "judged.py"

func checkJudged(t *testing.T, run traced) {
	qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
	text, err := os.ReadFile(program(t, judged))
	qt.Assert(t, qt.IsNil(err))
	var good, bad []string
	for i, line := range strings.Split(string(text), "\n") {
		if at := fmt.Sprintf("%s:%d", judged, i+1); strings.Contains(line, "# GOOD") {
			good = append(good, at)
		} else if strings.Contains(line, "# BAD") {
			bad = append(bad, at)
		}
	}
	programs, live, accused := 0, make(map[string]bool), make(map[string]bool)
	why := make(map[string][]string) // what is known of the buffers of a bad line that are live at a peak
	for title, events := range devicesOf(run.events) {
		programs++
		advice, err := advise.Of(func(handle func(*event.Event)) error {
			for i := range events {
				handle(&events[i])
			}
			return nil
		})
		qt.Assert(t, qt.IsNil(err))
		for _, peak := range advice.Peaks {
			qt.Check(t, qt.Equals(peak.All.Doubt, ""), qt.Commentf("%s", title))
			for i := range advice.All {
				if b := &advice.All[i]; b.In == peak.Space && b.Born <= peak.PeakAt && b.End > peak.PeakAt {
					live[lineIn(good, b.Stack)] = true
					line := lineIn(bad, b.Stack)
					why[line] = append(why[line], fmt.Sprintf("%s: known %v, %d uses, owner %q", title, b.IsKnown(), b.Uses, advice.Owner(i).Path))
				}
			}
			for _, l := range slices.Concat(peak.Lines, peak.Early) {
				line := lineIn(bad, l.Stack)
				if line == "" {
					t.Errorf("%s: %v is accused", title, name.Of(l.Stack.Frames()))
				}
				accused[line] = true
			}
		}
	}
	t.Logf("%d programs, %d lines that are not accused, %d that are", programs, len(good), len(bad))
	qt.Check(t, qt.IsTrue(programs >= 2*20))
	for _, line := range good {
		qt.Check(t, qt.IsTrue(live[line]), qt.Commentf("%s is not live at a peak", line))
	}
	for _, line := range bad {
		qt.Check(t, qt.IsTrue(accused[line]), qt.Commentf("%s is not accused: %q", line, why[line]))
	}
}

// lineIn returns the line of a list that a call stack passes; "" if there is none.
func lineIn(lines []string, stack *event.Stack) string {
	for _, line := range lines {
		if name.AtLine(line)(stack) {
			return line
		}
	}
	return ""
}

// devicesOf returns the events of each device that a process opens, by the mark before.
func devicesOf(events []event.Event) map[string][]event.Event {
	devices, title, from := make(map[string][]event.Event), "", 0
	for i := range events {
		switch e := &events[i]; e.Kind {
		case event.Mark:
			title, from = e.Cause, i
		case event.DeviceClose:
			devices[title] = events[from : i+1]
		}
	}
	return devices
}
