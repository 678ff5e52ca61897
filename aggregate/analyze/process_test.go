package analyze

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

func after(events ...event.Event) *aggregate.State {
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	return s
}

// opened is a device whose allocator has 1000 bytes of L1 in each of 64 banks.
func opened(pid int, allocator uint64, devices ...int) event.Event {
	return event.Event{
		Kind: event.DeviceOpen, PID: pid, Allocator: allocator, Devices: devices,
		Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{event.L1: {Banks: 64, BytesPerBank: 1000, Base: 100}}},
	}
}

func allocated(time uint64, pid int, id, address, perBank uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.Alloc, PID: pid, BufferID: id, Allocator: 5, Region: event.L1,
		Devices: devices, Address: address, SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64,
	}
}

func refused(time uint64, pid int, perBank uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.AllocFailed, PID: pid, Allocator: 5, Region: event.L1, Devices: devices,
		SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64, Reason: event.ReasonOutOfMemory,
	}
}

// TestForProcess has a process that exec'ed another program, and another process.
func TestForProcess(t *testing.T) {
	s := after(
		opened(7, 5, 0), allocated(1, 7, 1, 200, 300, 0),
		event.Event{TimeNs: 2, Kind: event.ProcessExit, PID: 7},
		opened(7, 6, 0), allocated(3, 7, 1, 200, 100, 0),
		opened(8, 9, 0, 1), allocated(4, 8, 1, 500, 400, 0), allocated(4, 8, 2, 500, 50, 1),
		refused(5, 8, 999, 0), refused(6, 7, 998, 0),
	)
	all := s.Snapshot()
	one := ForProcess(all, 7)
	qt.Assert(t, qt.IsNotNil(one))
	qt.Check(t, qt.HasLen(one.Processes, 2))
	qt.Check(t, qt.Equals(one.ExitedProcesses, 1))
	qt.Assert(t, qt.HasLen(one.Devices, 1))
	l1 := one.Devices[0].Regions.L1
	qt.Check(t, qt.DeepEquals([]uint64{l1.Buffers, l1.BytesPerBank}, []uint64{1, 100}))
	qt.Check(t, qt.Equals(one.Devices[0].L1PerCore.Peak.BufferBytes, 300))
	qt.Assert(t, qt.HasLen(one.Failures, 1))
	qt.Check(t, qt.Equals(one.Failures[0].BytesPerBank, 998))
	qt.Check(t, qt.Equals(all.Devices[0].Regions.L1.BytesPerBank, 500), qt.Commentf("the original is unchanged"))
	qt.Check(t, qt.IsNil(ForProcess(all, 9)))
}
