package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

func end(time uint64, pid int) event.Event {
	return event.Event{TimeNs: time, Kind: event.ProcessExit, PID: pid, ExitStatus: 9}
}

func TestWhatAProcessLeftIsToldByStack(t *testing.T) {
	l1 := tensor(1, 7, 4, 0)
	l1.Region = event.L1
	s := after(from(1, tensor(1, 7, 1, 0)), from(2, tensor(1, 7, 2, 0, 1)), from(2, tensor(1, 7, 3, 0)),
		from(3, l1), tensor(1, 7, 5, 0), from(4, tensor(1, 7, 6, 0)), free(2, 7, 6), end(3, 7))
	const n = 540672
	left := s.Snapshot().Processes[0].Left
	qt.Assert(t, qt.HasLen(left, 2))
	qt.Check(t, qt.Equals(left[0].AllocatedBytes, 5*n))
	checkHolders(t, left[0].Holders, aggregate.Holder{3 * n, 2, stacks[2]}, aggregate.Holder{n, 1, stacks[1]})
	checkHolders(t, left[1].Holders, aggregate.Holder{n, 1, stacks[3]})
}

func checkHolders(t *testing.T, got []aggregate.Holder, want ...aggregate.Holder) {
	t.Helper()
	qt.Assert(t, qt.HasLen(got, len(want)))
	for i := range want {
		qt.Check(t, qt.Equals(got[i], want[i]))
	}
}

func TestWhatIsLeftAtEachEndOfADeviceAddsUp(t *testing.T) {
	s := aggregate.New()
	for i := range uint64(3) {
		for _, e := range []event.Event{
			from(1, tensor(i, 7, i, 0)),
			{TimeNs: i, Kind: event.DeviceClose, PID: 7},
		} {
			s.Apply(&e)
		}
	}
	left := s.Snapshot().Processes[0].Left
	qt.Assert(t, qt.HasLen(left, 1))
	qt.Check(t, qt.Equals(left[0].Reason, "device_close"))
	checkHolders(t, left[0].Holders, aggregate.Holder{3 * 540672, 3, stacks[1]})
}

func TestOnlyTheLargestHoldersAreKept(t *testing.T) {
	for _, test := range []struct {
		name string
		end  event.Event
	}{
		{"of a process that ended", end(9, 7)},
		{"of one that goes on", event.Event{TimeNs: 9, Kind: event.DeviceClose, PID: 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := aggregate.New()
			const count = 100_000
			for i := range uint64(count) {
				e := tensor(1, 7, i, 0)
				e.Stack = event.NewStack(i+1, nil)
				if i%10_000 == 0 {
					e.Banks = 1000
				}
				s.Apply(&e)
			}
			s.Apply(&test.end)
			left := s.Snapshot().Processes[0].Left
			qt.Assert(t, qt.HasLen(left, 1))
			qt.Check(t, qt.Equals(left[0].Buffers, count))
			qt.Assert(t, qt.HasLen(left[0].Holders, 16))
			for _, h := range left[0].Holders[:10] {
				qt.Check(t, qt.Equals(h.Bytes, 45056*1000))
			}
			told := 0
			for e := range s.Checkpoint() {
				if e.Kind == event.Left {
					told++
				}
			}
			qt.Check(t, qt.IsTrue(told <= 1025), qt.Commentf("%d", told))
		})
	}
}

func TestBuffersFromBeforeTheAttachAreCounted(t *testing.T) {
	found := tensor(1, 7, 1, 0)
	found.BeforeAttach = true
	second := found
	second.BufferID = 2
	start := event.Event{Kind: event.ProcessStart, PID: 7, AttachedLate: true}
	s := after(start, found, second, tensor(2, 7, 3, 0), free(3, 7, 1))
	p := s.Snapshot().Processes[0]
	qt.Check(t, qt.IsTrue(p.AttachedLate))
	qt.Check(t, qt.Equals(p.BeforeAttachBuffers, 2))
	p = restored(t, s).Snapshot().Processes[0]
	qt.Check(t, qt.Equals(p.BeforeAttachBuffers, 2))
}
