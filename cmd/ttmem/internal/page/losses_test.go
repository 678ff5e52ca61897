package page

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
)

// TestDoubtsNameProcesses: only processes that lost events are doubtful, a few are named, and
// names from processes are cleaned.
func TestDoubtsNameProcesses(t *testing.T) {
	all := memory.AllLosses{Lost: map[string]uint64{}}
	qt.Check(t, qt.HasLen(Doubts(all, "totals may be wrong"), 0))
	all.Lost["mappings not seen"] = 1
	all.Processes = []memory.ProcessLosses{
		{PID: 7, Comm: "a\x1b[2J", Losses: memory.Losses{Lost: map[string]uint64{"ring buffer full": 2, "buffer not readable": 12}}},
		{PID: 8, SinceNs: 1e9, Losses: memory.Losses{Corrected: map[string]uint64{"ring buffer full": 1}, RightSinceNs: 3.5e9}},
	}
	for range 5 {
		all.Processes = append(all.Processes, all.Processes[0])
	}
	list := Doubts(all, "totals may be wrong")
	qt.Assert(t, qt.HasLen(list, 7))
	qt.Check(t, qt.Equals(list[0], "totals may be wrong: 1 event lost (mappings not seen)"))
	qt.Check(t, qt.Equals(list[1], "figures of process 7 ("+Clean("a\x1b[2J")+") may be wrong: 14 events lost (12: buffer not readable, 2: ring buffer full)"))
	qt.Check(t, qt.Equals(list[2], "figures of process 8 in its first 2.5 s may be wrong: 1 event lost (ring buffer full); its memory was read again then"))
	qt.Check(t, qt.Equals(list[6], "figures of 2 more processes may be wrong"))
}
