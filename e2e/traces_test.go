package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/words"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// The steps of captured traces are events with the lines that do them, and a replay runs the programs
// that were enqueued during its capture. The mock device of 0.66 captures operations; on all mock
// devices the first replay ends the process.
func TestCapturedTraces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ version, what string }{{"0.81.1", "none"}, {"0.76.0", "none"}, {"0.66.0", "operations"}} {
		if !tracetest.Tests(test.version) {
			continue
		}
		t.Run(test.version, func(t *testing.T) {
			t.Parallel()
			path := program(t, "traces.py")
			run := traceRun(t, setup(t, test.version, "3.10"), "n150", path, test.what)
			line := markedLines(t, path)
			type step struct {
				Kind event.Kind
				ID   uint64
				Line int
			}
			var steps []step
			s := aggregate.New()
			for _, e := range run.events {
				s.Apply(&e)
				if e.Kind < event.TraceBegin || e.Kind > event.TraceRelease {
					continue
				}
				calls := name.UserCalls(e.Stack.Frames())
				qt.Assert(t, qt.IsTrue(len(calls) > 0))
				qt.Check(t, qt.Equals(filepath.Base(calls[0].File), "traces.py"))
				qt.Check(t, qt.DeepEquals(e.Devices, []int{0}))
				steps = append(steps, step{e.Kind, e.ProgramID, calls[0].Line})
			}
			qt.Assert(t, qt.IsTrue(len(steps) > 0))
			first := steps[0].ID
			qt.Check(t, qt.DeepEquals(steps, []step{
				{event.TraceBegin, first, line["begin"]}, {event.TraceEnd, first, line["end"]}, {event.TraceRelease, first, line["release"]},
				{event.TraceBegin, first + 1, line["begin"]}, {event.TraceEnd, first + 1, line["end"]}, {event.TraceReplay, first + 1, line["replay"]},
			}))
			// what was allocated after the capture, and is live at the replay
			unsafe := s.Snapshot().Unsafe
			qt.Assert(t, qt.HasLen(unsafe, 1))
			qt.Check(t, qt.Equals(name.UserCalls(unsafe[0].Stack.Frames())[0].Line, line["unsafe"]))
			qt.Check(t, qt.DeepEquals([]uint64{unsafe[0].Count, unsafe[0].TraceID}, []uint64{3, first + 1}))
			qt.Check(t, qt.Equals(strings.Count(run.stderr, " may have overwritten "), 1))
			qt.Check(t, qt.StringContains(run.stderr, fmt.Sprintf("the replay of trace %d may have overwritten 3 buffers (%s of %s) of traces.py:%d ",
				first+1, words.Bytes(unsafe[0].Bytes), unsafe[0].Region, line["unsafe"])))
			var replays uint64
			list, _ := s.Operations()
			for _, op := range list {
				if calls := name.UserCalls(op.Stack.Frames()); op.Replays > 0 && calls[0].Line == line["captured"] {
					replays += op.Replays
					qt.Check(t, qt.Equals(op.Runs, 6)) // twice in two captures, and the replay
				}
			}
			qt.Check(t, qt.Equals(replays, map[string]uint64{"none": 0, "operations": 2}[test.what]))
			qt.Check(t, qt.IsFalse(slices.ContainsFunc(s.RegionPeaks(), func(p memory.RegionPeak) bool { return p.AtLeast })))
		})
	}
}

// TestUnsafeBuffersAreUpstreams: what ttmem says that a replay may overwrite is what the library's own tracker names. Only newer
// releases have it.
func TestUnsafeBuffersAreUpstreams(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.81.1", "0.80.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		for _, trace := range []string{"first", "second"} {
			t.Run(version+" "+trace, func(t *testing.T) {
				t.Parallel()
				run := traceRun(t, setup(t, version, "3.10"), "n150", program(t, "traces_tracked.py"), trace)
				_, tracked, found := strings.Cut(run.stderr, "TRACKED ")
				qt.Assert(t, qt.IsTrue(found), qt.Commentf("%s", run.stderr))
				tracked, _, _ = strings.Cut(tracked, "\n")
				// the buffers by id, and those that count at the replay
				s, buffers := aggregate.New(), make(map[string]string)
				for _, e := range run.events {
					s.Apply(&e)
					if e.Kind == event.Alloc {
						buffers[fmt.Sprint(e.BufferID)] = fmt.Sprint(e.Region, " ", name.Of(e.Stack.Frames()))
					}
				}
				want, got := make(map[string]uint64), make(map[string]uint64)
				for _, id := range strings.Fields(tracked) {
					qt.Check(t, qt.IsTrue(buffers[id] != ""), qt.Commentf("%s", id))
					want[buffers[id]]++
				}
				for _, u := range s.Snapshot().Unsafe {
					got[fmt.Sprint(u.Region, " ", name.Of(u.Stack.Frames()))] += u.Count
				}
				t.Logf("%v", want)
				qt.Check(t, qt.DeepEquals(got, want))
			})
		}
	}
}
