package e2e

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// A program catches the same exceptions under a tracer as without, and each failure is
// reported with the library's own figures.
func TestFailuresAreCaught(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			run := traceRun(t, setup(t, version, "3.10"), "n150", program(t, "failures.py"))
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			assertEqual(t, run.events, readCheckpoints(t, run.dir))
			var reasons []event.Reason
			for _, e := range run.events {
				if e.Kind != event.AllocFailed {
					continue
				}
				reasons = append(reasons, e.Reason)
				qt.Check(t, qt.DeepEquals(e.Devices, []int{0}))
				if e.Reason == event.ReasonOutOfMemory {
					qt.Check(t, qt.Equals(e.Region, event.L1))
					want := fmt.Sprintf("allocate %d B L1 buffer across %d banks, where each bank needs to store %d B",
						e.SizeBytes, e.Banks, e.BytesPerBank)
					qt.Check(t, qt.StringContains(e.Message, want))
				} else {
					qt.Check(t, qt.Equals(e.Region, event.CB))
					want := fmt.Sprintf("buffer region ends at %d", staticEnd(run.events, e.ProgramID))
					qt.Check(t, qt.StringContains(e.Message, want))
				}
			}
			qt.Check(t, qt.DeepEquals(reasons, []event.Reason{
				event.ReasonOutOfMemory, event.ReasonOutOfMemory, event.ReasonStaticClash,
			}))
		})
	}
}

// staticEnd is the end of a program's highest static buffer.
func staticEnd(events []event.Event, program uint64) (end uint64) {
	for _, e := range events {
		if e.Kind == event.CBAlloc && e.ProgramID == program {
			end = max(end, e.Address+e.SizeBytes)
		}
	}
	return end
}
