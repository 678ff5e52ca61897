package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

func TestProcessesOfAChipAreThoseThatUseItNow(t *testing.T) {
	l1 := tensor(3, 8, 2, 0)
	l1.Region = event.L1
	s := after(
		wormhole(1, 7, 1, 0, 1), tensor(2, 7, 1, 0),
		tensor(2, 8, 1, 0, 1), l1, cb(3, 8, 1, 1000, 500, 1, 1, 0), free(4, 8, 1), // not chip 1 any more
		wormhole(3, 9, 1, 1), event.Event{TimeNs: 4, Kind: event.DeviceClose, PID: 9, Allocator: 1}, // closed it
		kernels(3, 10, 1, 100, 10, 1),
		tensor(4, 11, 1, 0), end(5, 11), // ended
	)
	qt.Check(t, qt.DeepEquals(device(t, s, 0).Processes, []memory.DeviceProcess{
		{PID: 7, AllocatedBytes: map[string]uint64{"DRAM": 540672}},
		{PID: 8, AllocatedBytes: map[string]uint64{"L1": 64 * 45056}, CBMaxBytesPerCore: 500},
	}))
	qt.Check(t, qt.DeepEquals(device(t, s, 1).Processes, []memory.DeviceProcess{
		{PID: 7, AllocatedBytes: map[string]uint64{}},
		{PID: 10, AllocatedBytes: map[string]uint64{}},
	}))
	qt.Check(t, qt.HasLen(s.Snapshot().Processes[0].Devices[0].Processes, 0))
}
