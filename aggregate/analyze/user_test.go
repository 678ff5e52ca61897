package analyze

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// started is a process of a user, with a buffer on chip 0 and a failed allocation.
func started(pid, uid int, name string) []event.Event {
	return []event.Event{
		{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid, Comm: name, Start: &event.Start{Command: name + " --secret", Container: name}},
		{
			TimeNs: 2, Kind: event.Alloc, PID: pid, BufferID: 1, Devices: []int{0}, SizeBytes: 100, BytesPerBank: 100, Banks: 1,
			Stack: event.StackOf([]event.Frame{{Kind: event.Python, Name: name, File: name + ".py"}}),
		},
		{TimeNs: 3, Kind: event.AllocFailed, PID: pid, Message: name, Reason: event.ReasonOutOfMemory},
	}
}

func TestForUserShowsOwnProcessesAndTheSumOfOthers(t *testing.T) {
	var events []event.Event
	events = append(events, started(7, 1000, "mine")...)
	events = append(events, started(8, 1001, "other")...)
	events = append(events, started(9, 1002, "third")...)
	events = append(events, started(10, 1000, "mine too")...)
	events = append(events, started(11, 1001, "other gone")...)
	events = append(events, event.Event{TimeNs: 4, Kind: event.ProcessExit, PID: 10}, event.Event{TimeNs: 5, Kind: event.ProcessExit, PID: 11})
	all := after(events...).Snapshot()
	before, err := json.Marshal(all)
	qt.Assert(t, qt.IsNil(err))

	snap := ForUser(all, 1000)
	qt.Assert(t, qt.HasLen(snap.Processes, 2))
	qt.Check(t, qt.Equals(snap.Processes[0].PID, 7))
	qt.Check(t, qt.Equals(snap.Processes[1].PID, 10))
	qt.Check(t, qt.Equals(snap.ExitedProcesses, 1))
	qt.Assert(t, qt.HasLen(snap.Failures, 2))
	qt.Check(t, qt.Equals(snap.Failures[0].Message, "mine"))
	qt.Check(t, qt.Equals(snap.FailureCount, 2))
	d := snap.Devices[0]
	qt.Check(t, qt.Equals(d.Regions.DRAM.AllocatedBytes, 300))
	qt.Check(t, qt.DeepEquals(d.Processes, []memory.DeviceProcess{{PID: 7, AllocatedBytes: map[string]uint64{"DRAM": 100}}}))
	qt.Check(t, qt.DeepEquals(d.OtherUsers, &memory.OtherUsers{Processes: 2, AllocatedBytes: 200}))

	text, err := json.Marshal(snap)
	qt.Assert(t, qt.IsNil(err))
	for _, secret := range []string{"other\"", "other ", "third", "1001", "1002"} {
		qt.Check(t, qt.IsFalse(strings.Contains(string(text), secret)), qt.Commentf("%s in %s", secret, text))
	}
	again, err := json.Marshal(all)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(again), string(before)), qt.Commentf("the original is unchanged"))
}

func TestForUserWithoutProcessesShowsTheChips(t *testing.T) {
	snap := ForUser(after(started(7, 1000, "other")...).Snapshot(), 2000)
	text, err := json.Marshal(snap)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(text), `"processes":[],`))
	qt.Check(t, qt.StringContains(string(text), `"failures":[]`))
	qt.Check(t, qt.StringContains(string(text), `"other_users":{"processes":1,"allocated_bytes":100}`))
	qt.Check(t, qt.IsFalse(strings.Contains(string(text), "sharers")))
}

func TestOnlyRootSeesProcessesOfUnknownUsers(t *testing.T) {
	all := after(allocated(1, 7, 1, 100, 50, 0), event.Event{TimeNs: 2, Kind: event.AllocFailed, PID: 8}).Snapshot()
	qt.Check(t, qt.HasLen(ForUser(all, 1000).Processes, 0))
	qt.Check(t, qt.HasLen(ForUser(all, 1000).Failures, 0))
	qt.Check(t, qt.HasLen(ForUser(all, 0).Processes, 1))
	qt.Check(t, qt.HasLen(ForUser(all, 0).Failures, 1))
}
