package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestThePeakOfL1IsOfACore: what buffers and circular buffers take of a core together,
// not what they take of all of them.
func TestThePeakOfL1IsOfACore(t *testing.T) {
	static := event.Event{
		TimeNs: 2, Kind: event.CBAlloc, PID: 7, ProgramID: 1, Devices: []int{0}, Address: 100, SizeBytes: 150,
		Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer, Stack: stacks[1],
	}
	shared := static // of another program, in the same place
	shared.ProgramID, shared.SizeBytes = 2, 120
	events := []event.Event{opened(7, 5, 0), lies(1, 7, 1, 1000, 100, 0), static, shared}
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	qt.Check(t, qt.Equals(peakOfL1(settled(s)), 250))
	list := s.RegionPeaks()
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Bytes, 250))
}

// TestTheCapacityAtAnEarlierPeakOfL1IsOfACore, as the peak itself, also where it is a process's own.
func TestTheCapacityAtAnEarlierPeakOfL1IsOfACore(t *testing.T) {
	first := after(
		opened(7, 5, 0), lies(1, 7, 1, 1000, 100, 0),
		event.Event{TimeNs: 2, Kind: event.Free, PID: 7, BufferID: 1, Reason: event.ReasonExplicit},
	)
	s := aggregate.New()
	s.Apply(aggregate.OfProcesses(first.Checkpoint(), []int{7}))
	list := s.RegionPeaks()
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.DeepEquals(list[0].Earlier, &memory.EarlierPeak{TimeNs: 1, Bytes: 100, CapacityBytes: 1000}))
}

// peakOfL1 returns the peak of the L1 of chip 0, in bytes.
func peakOfL1(s *aggregate.State) uint64 {
	for _, peak := range s.RegionPeaks() {
		if peak.Device == 0 && peak.Region == event.L1 {
			return peak.Bytes
		}
	}
	return 0
}
