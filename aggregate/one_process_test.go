package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestASnapshotOfOneProcessHasItsOwnShareOfTheChips: of a process that went on as another
// program, with the higher of its peaks, and of nobody else.
func TestASnapshotOfOneProcessHasItsOwnShareOfTheChips(t *testing.T) {
	s := after(
		opened(7, 5, 0), lies(1, 7, 1, 200, 300, 0),
		event.Event{TimeNs: 2, Kind: event.ProcessExit, PID: 7},
		opened(7, 6, 0), lies(3, 7, 1, 200, 100, 0),
		opened(8, 9, 0, 1), lies(4, 8, 1, 500, 400, 0), lies(4, 8, 2, 500, 50, 1),
		wants(5, 8, 999, 0), wants(6, 7, 998, 0),
	)
	all := s.Snapshot()
	one := all.ForProcess(7)
	qt.Assert(t, qt.IsNotNil(one))
	qt.Check(t, qt.HasLen(one.Processes, 2))
	qt.Check(t, qt.Equals(one.ExitedProcesses, 1))
	qt.Assert(t, qt.HasLen(one.Devices, 1))
	l1 := one.Devices[0].Regions.L1
	qt.Check(t, qt.DeepEquals([]uint64{l1.Buffers, l1.BytesPerBank}, []uint64{1, 100}))
	qt.Check(t, qt.Equals(l1.PeakBytes, 3*l1.AllocatedBytes))
	qt.Check(t, qt.Equals(one.Devices[0].L1PerCore.Peak.BufferBytes, 300))
	qt.Assert(t, qt.HasLen(one.Failures, 1))
	qt.Check(t, qt.Equals(one.Failures[0].BytesPerBank, 998))
	qt.Check(t, qt.Equals(all.Devices[0].Regions.L1.BytesPerBank, 500), qt.Commentf("the whole is as it was"))
	qt.Check(t, qt.IsNil(all.ForProcess(9)))
}
