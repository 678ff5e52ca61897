package aggregate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

func TestTheSharersOfAChipAreThoseThatUseItNow(t *testing.T) {
	l1 := tensor(3, 8, 2, 0)
	l1.Region = event.L1
	s := after(
		wormhole(1, 7, 1, 0, 1), tensor(2, 7, 1, 0),
		tensor(2, 8, 1, 0, 1), l1, cb(3, 8, 1, 1000, 500, 1, 1, 0), free(4, 8, 1), // not chip 1 any more
		wormhole(3, 9, 1, 1), event.Event{TimeNs: 4, Kind: event.DeviceClose, PID: 9, Allocator: 1}, // closed it
		kernels(3, 10, 1, 100, 10, 1),
		tensor(4, 11, 1, 0), end(5, 11), // ended
	)
	qt.Check(t, qt.DeepEquals(device(t, s, 0).Sharers, []aggregate.Sharer{
		{PID: 7, AllocatedBytes: map[string]uint64{"DRAM": 540672}},
		{PID: 8, AllocatedBytes: map[string]uint64{"L1": 540672}, CBMaxBytesPerCore: 500},
	}))
	qt.Check(t, qt.DeepEquals(device(t, s, 1).Sharers, []aggregate.Sharer{
		{PID: 7, AllocatedBytes: map[string]uint64{}},
		{PID: 10, AllocatedBytes: map[string]uint64{}},
	}))
	qt.Check(t, qt.HasLen(s.Snapshot().Processes[0].Devices[0].Sharers, 0))
}

// started is a process of a user that has a buffer on chip 0, and failed once.
func started(pid, uid int, name string) []event.Event {
	return []event.Event{
		{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid, Comm: name, Command: name + " --secret", Container: name},
		{
			TimeNs: 2, Kind: event.Alloc, PID: pid, BufferID: 1, Devices: []int{0}, SizeBytes: 100, BytesPerBank: 100, Banks: 1,
			Stack: event.StackOf([]event.Frame{{Kind: event.Python, Name: name, File: name + ".py"}}),
		},
		{TimeNs: 3, Kind: event.AllocFailed, PID: pid, Message: name, Reason: event.ReasonOutOfMemory},
	}
}

func TestAUserSeesHisOwnProcessesAndOneFigureOfOthers(t *testing.T) {
	var events []event.Event
	events = append(events, started(7, 1000, "mine")...)
	events = append(events, started(8, 1001, "other")...)
	events = append(events, started(9, 1002, "third")...)
	events = append(events, started(10, 1000, "mine too")...)
	events = append(events, started(11, 1001, "other gone")...)
	events = append(events, end(4, 10), end(5, 11))
	all := after(events...).Snapshot()
	before, err := json.Marshal(all)
	qt.Assert(t, qt.IsNil(err))

	snap := all.ForUser(1000)
	qt.Assert(t, qt.HasLen(snap.Processes, 2))
	qt.Check(t, qt.Equals(snap.Processes[0].PID, 7))
	qt.Check(t, qt.Equals(snap.Processes[1].PID, 10))
	qt.Check(t, qt.Equals(snap.ExitedProcesses, 1))
	qt.Assert(t, qt.HasLen(snap.Failures, 2))
	qt.Check(t, qt.Equals(snap.Failures[0].Message, "mine"))
	qt.Check(t, qt.Equals(snap.FailureCount, 2))
	d := snap.Devices[0]
	qt.Check(t, qt.Equals(d.Regions.DRAM.AllocatedBytes, 300))
	qt.Check(t, qt.DeepEquals(d.Sharers, []aggregate.Sharer{{PID: 7, AllocatedBytes: map[string]uint64{"DRAM": 100}}}))
	qt.Check(t, qt.DeepEquals(d.OtherUsers, &aggregate.OtherUsers{Processes: 2, AllocatedBytes: 200}))

	text, err := json.Marshal(snap)
	qt.Assert(t, qt.IsNil(err))
	for _, secret := range []string{"other\"", "other ", "third", "1001", "1002"} {
		qt.Check(t, qt.IsFalse(strings.Contains(string(text), secret)), qt.Commentf("%s in %s", secret, text))
	}
	again, err := json.Marshal(all)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(again), string(before)), qt.Commentf("the whole snapshot stays as it is"))
}

func TestAUserOfNoProcessesSeesTheChips(t *testing.T) {
	snap := after(started(7, 1000, "other")...).Snapshot().ForUser(2000)
	text, err := json.Marshal(snap)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(text), `"processes":[],`))
	qt.Check(t, qt.StringContains(string(text), `"failures":[]`))
	qt.Check(t, qt.StringContains(string(text), `"other_users":{"processes":1,"allocated_bytes":100}`))
	qt.Check(t, qt.IsFalse(strings.Contains(string(text), "sharers")))
}

func TestOnlyRootSeesWhatIsNotKnownToBeAnybodys(t *testing.T) {
	all := after(tensor(1, 7, 1, 0), event.Event{TimeNs: 2, Kind: event.AllocFailed, PID: 8}).Snapshot()
	qt.Check(t, qt.HasLen(all.ForUser(1000).Processes, 0))
	qt.Check(t, qt.HasLen(all.ForUser(1000).Failures, 0))
	qt.Check(t, qt.HasLen(all.ForUser(0).Processes, 1))
	qt.Check(t, qt.HasLen(all.ForUser(0).Failures, 1))
}
