package analyze

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// uses is a process of a user, with a buffer on each of these chips.
func uses(pid, uid, from, to int) []event.Event {
	events := []event.Event{{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid}}
	for chip := from; chip < to; chip++ {
		events = append(events, event.Event{
			TimeNs: 2, Kind: event.Alloc, PID: pid, BufferID: uint64(chip + 1), Devices: []int{chip}, SizeBytes: 8, BytesPerBank: 8, Banks: 1,
		})
	}
	return events
}

// A user who claims thousands of chips fills the answers neither now nor later, and takes no chip from
// the answers of others.
func TestAUserHasSoManyChipsInAnAnswer(t *testing.T) {
	events := uses(7, 1000, 0, 3*maxChips)
	events = append(events, uses(8, 1001, 2*maxChips, 2*maxChips+4)...)
	state := after(events...)
	s := Bound(state.Snapshot())
	qt.Check(t, qt.Equals(len(s.Devices), maxChips+4))
	qt.Check(t, qt.Equals(s.DevicesLeftOut, 2*maxChips-4))
	qt.Check(t, qt.Equals(s.Devices[maxChips].ID, 2*maxChips))
	qt.Check(t, qt.HasLen(s.Processes[0].Devices, maxChips+4))
	qt.Check(t, qt.HasLen(s.Processes[1].Devices, 4))
	qt.Check(t, qt.HasLen(state.Snapshot().Devices, 3*maxChips)) // which Bound did not change

	state.Apply(&event.Event{TimeNs: 3, Kind: event.ProcessExit, PID: 7})
	s = Bound(state.Snapshot())
	qt.Check(t, qt.Equals(len(s.Devices), maxChips+4))

	few := after(uses(7, 1000, 0, 4)...).Snapshot()
	qt.Check(t, qt.Equals(Bound(few), few))
}
