package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestWhatDoesNotFitIsNoPeak: the library places the circular buffers of a program before
// it finds that they meet a tensor. They were never there, for whoever tells of peaks, also
// while buffers are freed until both would fit.
func TestWhatDoesNotFitIsNoPeak(t *testing.T) {
	const capacity = 1000
	open := event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}}
	open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: capacity}
	buffer := func(now, id, bytes uint64) event.Event {
		return event.Event{
			TimeNs: now, Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: id, Devices: []int{0}, Region: event.L1, BytesPerBank: bytes, Banks: 64,
		}
	}
	static := func(now, program, bytes uint64) event.Event {
		return event.Event{
			TimeNs: now, Kind: event.CBAlloc, PID: 7, ProgramID: program, Devices: []int{0}, SizeBytes: bytes,
			Cores: []event.CoreRange{{X1: 1, Y1: 1}}, StaticKind: event.CircularBuffer,
		}
	}
	s := aggregate.New()
	for _, e := range []event.Event{
		open, buffer(2, 1, 500), buffer(3, 2, 200), static(4, 1, 100), // 800
		static(5, 2, 600), // meets a tensor
		{TimeNs: 6, Kind: event.Free, PID: 7, BufferID: 1, Reason: event.ReasonExplicit},
		{TimeNs: 7, Kind: event.CBFree, PID: 7, ProgramID: 2},
	} {
		s.Apply(&e)
	}
	check := func(time, buffers, static uint64) {
		t.Helper()
		peak := s.Snapshot().Devices[0].L1PerCore.Peak
		qt.Check(t, qt.Equals(peak, memory.L1Peak{TimeNs: time, BufferBytes: buffers, CBBytes: static}))
		list := s.RegionPeaks()
		qt.Assert(t, qt.HasLen(list, 1))
		qt.Check(t, qt.Equals(list[0].Bytes, buffers+static))
		qt.Check(t, qt.Equals(list[0].TimeNs, time))
		for _, span := range list[0].Timeline.Spans(time + 100) {
			qt.Check(t, qt.IsTrue(span.Max <= buffers+static))
		}
	}
	check(4, 700, 100)
	last := buffer(8, 3, capacity-300) // all that there is
	s.Apply(&last)
	check(8, 900, 100)
	qt.Check(t, qt.Equals(peakOfL1(s), 1000))
}
