package aggregate_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

func end(time uint64, pid int) event.Event {
	return event.Event{TimeNs: time, Kind: event.ProcessExit, PID: pid, ExitStatus: 9}
}

func TestUnfreedBuffersAreCountedByRegion(t *testing.T) {
	l1 := tensor(1, 7, 4, 0)
	l1.Region = event.L1
	s := after(tensor(1, 7, 1, 0), tensor(1, 7, 2, 0, 1), l1, tensor(1, 7, 6, 0), free(2, 7, 6), end(3, 7))
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		qt.Check(t, qt.DeepEquals(s.Snapshot().Processes[0].Unfreed, []memory.RegionTotal{
			{Region: "DRAM", Reason: "process_exit", Buffers: 2, SizeBytes: 3 * 524288, AllocatedBytes: 3 * 540672},
			{Region: "L1", Reason: "process_exit", Buffers: 1, SizeBytes: 524288, AllocatedBytes: 540672},
		}))
	}
}

// resolver stands for all that is known of a process's code.
type resolver struct{ calls []*event.Call }

func (r *resolver) lookUp() []*event.Call { return r.calls }

// lazyStack is a stack whose resolver can be freed once it was asked.
func lazyStack(id uint64) (*event.Stack, weak.Pointer[resolver]) {
	r := &resolver{[]*event.Call{event.NewCall([]event.Frame{{Kind: event.Python, Name: "forward"}})}}
	return event.NewStack(id, r.lookUp), weak.Make(r)
}

func TestWhatAProcessLeavesDoesNotHoldItsCode(t *testing.T) {
	for name, over := range map[string]event.Event{
		"ended":           end(9, 7),
		"another program": {TimeNs: 9, Kind: event.ProcessStart, PID: 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := aggregate.New()
			held, heldCode := lazyStack(1)
			failed, failedCode := lazyStack(2)
			other, otherCode := lazyStack(3)
			for _, e := range []event.Event{
				{TimeNs: 1, Kind: event.Alloc, PID: 7, BufferID: 1, Banks: 1, BytesPerBank: 5, Devices: []int{0}, Stack: held},
				{TimeNs: 2, Kind: event.AllocFailed, PID: 7, Stack: failed},
				{TimeNs: 3, Kind: event.AllocFailed, PID: 8, Stack: other},
				over,
			} {
				s.Apply(&e)
			}
			runtime.GC()
			qt.Check(t, qt.IsNil(heldCode.Value()))
			qt.Check(t, qt.IsNil(failedCode.Value()))
			// what runs still is looked up when somebody asks
			qt.Check(t, qt.IsNotNil(otherCode.Value()))
			snap := s.Snapshot()
			qt.Check(t, qt.Equals(snap.Failures[0].Stack.Frames()[0].Name, "forward"))
			runtime.KeepAlive(s)
		})
	}
}

func TestWhatIsLeftAtEachEndOfADeviceAddsUp(t *testing.T) {
	s := aggregate.New()
	for i := range uint64(3) {
		for _, e := range []event.Event{
			tensor(i, 7, i, 0),
			{TimeNs: i, Kind: event.DeviceClose, PID: 7},
		} {
			s.Apply(&e)
		}
	}
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		left := s.Snapshot().Processes[0].Unfreed
		qt.Assert(t, qt.HasLen(left, 1))
		qt.Check(t, qt.Equals(left[0], memory.RegionTotal{
			Region: "DRAM", Reason: "device_close", Buffers: 3, SizeBytes: 3 * 524288, AllocatedBytes: 3 * 540672,
		}))
	}
}

func TestBuffersFromBeforeTheAttachAreCounted(t *testing.T) {
	found := tensor(1, 7, 1, 0)
	found.BeforeAttach = true
	second := found
	second.BufferID = 2
	start := event.Event{Kind: event.ProcessStart, PID: 7, Start: &event.Start{AttachedLate: true}}
	s := after(start, found, second, tensor(2, 7, 3, 0), free(3, 7, 1))
	p := s.Snapshot().Processes[0]
	qt.Check(t, qt.IsTrue(p.AttachedLate))
	qt.Check(t, qt.Equals(p.BeforeAttachBuffers, 2))
	p = restored(t, s).Snapshot().Processes[0]
	qt.Check(t, qt.Equals(p.BeforeAttachBuffers, 2))
}
