package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// TestACallSiteIsOneWithSeveralAllocators: views add up what it has with each, and a device
// that is closed ends its own part alone, however often devices are opened and closed.
func TestACallSiteIsOneWithSeveralAllocators(t *testing.T) {
	s := aggregate.New()
	apply := func(e event.Event) { s.Apply(&e) }
	with := func(allocator uint64, e event.Event) event.Event {
		e.Allocator = allocator
		return from(1, e)
	}
	closes := func(now, allocator uint64) event.Event {
		return event.Event{TimeNs: now, Kind: event.DeviceClose, PID: 7, Allocator: allocator}
	}
	apply(with(1, tensor(1, 7, 1, 0)))
	apply(with(1, tensor(2, 7, 2, 0)))
	const reopened = 20
	for n := range uint64(reopened) {
		now := 10 + 10*n
		apply(with(2+n%3, tensor(now, 7, now, 0)))
		apply(closes(now+1, 2+n%3))
		apply(free(now+2, 7, now))
		qt.Assert(t, qt.Equals(s.Snapshot().Anomalies.RepeatedFrees, n+1)) // the close has ended it
	}
	list := s.CallSites()
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Amount, amount(2, 2*540672)))
	qt.Check(t, qt.Equals(list[0].Allocated.Count, 2+reopened))
	qt.Check(t, qt.Equals(list[0].SinceNs, 1))
	peak := s.RegionPeaks()[0]
	qt.Assert(t, qt.HasLen(peak.Holders, 1))
	qt.Check(t, qt.Equals(peak.Holders[0].Count, 3))
	qt.Check(t, qt.Equals(peak.TimeNs, 10))
	sample := s.Profile().Samples[0]
	qt.Check(t, qt.Equals(sample.Allocated.Count, 2+reopened))
	qt.Check(t, qt.Equals(sample.Unfreed().Count, 2+reopened)) // none was freed explicitly
	qt.Check(t, qt.HasLen(s.Buffers(), 2))
	left := s.Snapshot().Processes[0].Unfreed
	qt.Assert(t, qt.HasLen(left, 1))
	qt.Check(t, qt.Equals(left[0].Buffers, reopened))
}
