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

func TestUnfreedBuffersAreReportedByStack(t *testing.T) {
	l1 := tensor(1, 7, 4, 0)
	l1.Region = event.L1
	s := after(from(1, tensor(1, 7, 1, 0)), from(2, tensor(1, 7, 2, 0, 1)), from(2, tensor(1, 7, 3, 0)),
		from(3, l1), tensor(1, 7, 5, 0), from(4, tensor(1, 7, 6, 0)), free(2, 7, 6), end(3, 7))
	const n = 540672
	left := s.Snapshot().Processes[0].Unfreed
	qt.Assert(t, qt.HasLen(left, 2))
	qt.Check(t, qt.Equals(left[0].AllocatedBytes, 5*n))
	checkHolders(t, left[0].Holders, holds(3*n, 2, stacks[2]), holds(n, 1, stacks[1]), holds(n, 1, nil))
	checkHolders(t, left[1].Holders, holds(n, 1, stacks[3]))
}

func holds(bytes, count uint64, stack *event.Stack) memory.Holder {
	return memory.Holder{Bytes: bytes, Count: count, Stack: stack}
}

// crowd is a process with 20 stacks, each with more than the one before, one buffer
// without a stack and two from before the attach.
func crowd(end event.Event) *aggregate.State {
	s := aggregate.New()
	for i := range uint64(23) {
		e := tensor(1, 7, i, 0)
		e.Banks, e.BytesPerBank = 1, i+1
		switch {
		case i < 20:
			e.Stack = event.NewStack(i+1, nil)
		case i > 20:
			e.BeforeAttach = true
		}
		s.Apply(&e)
	}
	s.Apply(&end)
	return s
}

func checkCrowd(t *testing.T, l memory.RegionTotal) {
	t.Helper()
	qt.Assert(t, qt.HasLen(l.Holders, 19))
	var bytes, count uint64
	for i, h := range l.Holders {
		bytes, count = bytes+h.Bytes, count+h.Count
		if i < 16 {
			qt.Check(t, qt.Equals(h.Stack.ID, uint64(20-i)))
		}
	}
	qt.Check(t, qt.Equals(bytes, l.AllocatedBytes))
	qt.Check(t, qt.Equals(count, l.Buffers))
	checkHolders(t, l.Holders[16:],
		memory.Holder{Bytes: 22 + 23, Count: 2, BeforeAttach: true}, holds(21, 1, nil),
		memory.Holder{Bytes: 1 + 2 + 3 + 4, Count: 4, Stacks: 4})
}

func TestUnfreedBuffersOutsideTheListedStacksSayWhy(t *testing.T) {
	s := crowd(end(9, 7))
	checkCrowd(t, s.Snapshot().Processes[0].Unfreed[0])
	checkSame(t, restored(t, s), s, qt.Commentf("of one that ended"))
	s = crowd(event.Event{TimeNs: 9, Kind: event.DeviceClose, PID: 7})
	checkCrowd(t, s.Snapshot().Processes[0].Unfreed[0])
	checkSame(t, restored(t, s), s, qt.Commentf("of one that goes on"))
}

func TestLiveBuffersAreReportedByStackToo(t *testing.T) {
	s := crowd(tensor(9, 8, 1, 0))
	snap := s.Snapshot()
	qt.Check(t, qt.HasLen(snap.Processes[0].Live[0].Holders, 0))
	with := s.WithHolders(snap)
	checkCrowd(t, with.Processes[0].Live[0])
	// there are no stacks in process 8, and no reason for that is known
	qt.Check(t, qt.HasLen(with.Processes[1].Live[0].Holders, 0))
	qt.Check(t, qt.HasLen(snap.Processes[0].Live[0].Holders, 0), qt.Commentf("the snapshot was changed"))
	checkCrowd(t, restored(t, s).WithHolders(snap).Processes[0].Live[0])
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
			exited := snap.Processes[len(snap.Processes)-1]
			qt.Check(t, qt.Equals(exited.Unfreed[0].Holders[0].Stack.Frames()[0].Name, "forward"))
			runtime.KeepAlive(s)
		})
	}
}

func checkHolders(t *testing.T, got []memory.Holder, want ...memory.Holder) {
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
	left := s.Snapshot().Processes[0].Unfreed
	qt.Assert(t, qt.HasLen(left, 1))
	qt.Check(t, qt.Equals(left[0].Reason, "device_close"))
	checkHolders(t, left[0].Holders, holds(3*540672, 3, stacks[1]))
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
			left := s.Snapshot().Processes[0].Unfreed
			qt.Assert(t, qt.HasLen(left, 1))
			qt.Check(t, qt.Equals(left[0].Buffers, count))
			qt.Assert(t, qt.HasLen(left[0].Holders, 17))
			for _, h := range left[0].Holders[:10] {
				qt.Check(t, qt.Equals(h.Bytes, 45056*1000))
			}
			qt.Check(t, qt.Equals(left[0].Holders[16].Stacks, count-16))
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
