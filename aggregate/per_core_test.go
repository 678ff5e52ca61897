package aggregate

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

const coreTop = 0x100000 // the end of L1

func onCores(id, address, bytes uint64, stack *event.Stack, cores ...event.CoreRange) *event.Event {
	e := &event.Event{
		TimeNs: id, Kind: event.Alloc, PID: 1, Devices: []int{0}, Region: event.L1, Layout: event.HeightSharded, BufferID: id,
		Allocator: 1, Address: address, BytesPerBank: bytes, PerCore: true, Cores: cores, Stack: stack,
	}
	for _, c := range cores {
		e.Banks += uint32(c.Cores())
	}
	e.SizeBytes = bytes * uint64(e.Banks)
	return e
}

func one(x, y uint16) event.CoreRange { return event.CoreRange{X0: x, Y0: y, X1: x, Y1: y} }

func perCoreState(events ...*event.Event) *State {
	s := New()
	open := event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 1, Devices: []int{0}, Allocator: 1}
	open.Open = new(event.Open)
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 4, BytesPerBank: 0x80000, Base: coreTop - 0x80000}
	s.Apply(&open)
	for _, e := range events {
		s.Apply(e)
	}
	return s
}

// everywhere is a buffer in all banks.
func everywhere(id, address, bytes uint64) *event.Event {
	return &event.Event{
		TimeNs: id, Kind: event.Alloc, PID: 1, Devices: []int{0}, Region: event.L1, BufferID: id, Allocator: 1,
		Address: address, SizeBytes: 4 * bytes, BytesPerBank: bytes, Banks: 4,
	}
}

func freed(id, at uint64) *event.Event {
	return &event.Event{TimeNs: at, Kind: event.Free, PID: 1, Region: event.L1, BufferID: id, Allocator: 1, Reason: event.ReasonExplicit}
}

// What a buffer on single cores takes counts for these cores alone, beside circular buffers
// of the same core.
func TestBuffersOnSingleCoresCountForTheirCores(t *testing.T) {
	many, big := event.StackOf([]event.Frame{{Name: "many"}}), event.StackOf([]event.Frame{{Name: "big"}})
	many.ID, big.ID = 1, 2
	s := perCoreState(
		onCores(10, coreTop-0x5000, 0x5000, many, one(0, 0)),
		onCores(11, coreTop-0x5000, 0x5000, many, one(1, 0)),
		onCores(12, coreTop-0x5000, 0x5000, many, one(0, 1)),
		onCores(13, coreTop-0xd000, 0x8000, big, event.CoreRange{X1: 1}), // cores 0-0 and 1-0
		everywhere(14, coreTop-0xf000, 0x2000),
		&event.Event{
			TimeNs: 15, Kind: event.CBAlloc, PID: 1, Devices: []int{0}, ProgramID: 1, Address: coreTop - 0x80000,
			SizeBytes: 0xa000, Cores: []event.CoreRange{one(0, 1)}, StaticKind: event.CircularBuffer, Stack: big,
		},
	)
	s.Advance(15 + 1e9)
	check := func(s *State) {
		t.Helper()
		d := s.Snapshot().Devices[0]
		// core 0-0: 0x5000 + 0x8000; core 0-1: 0x5000 + 0xa000 of circular buffers
		qt.Check(t, qt.Equals(d.Regions.L1.BytesPerBank, 0x2000+0xd000))
		qt.Check(t, qt.Equals(d.Regions.L1.AllocatedBytes, 3*0x5000+2*0x8000+4*0x2000))
		qt.Check(t, qt.Equals(d.L1PerCore.BufferBytes, 0x2000+0xd000))
		qt.Check(t, qt.Equals(d.L1PerCore.LargestProgramBytes, 0xa000))
		qt.Check(t, qt.Equals(d.L1PerCore.FreeBytes, 0x80000-0xf000-d.L1PerCore.CBBytes))
		space := s.Space(0, event.L1)
		qt.Check(t, qt.Equals(space.BytesPerBank, d.Regions.L1.BytesPerBank))
		qt.Check(t, qt.Equals(space.FreeSpace, memory.FreeSpace{FreeBytesPerBank: 0x80000 - 0xf000, LargestFreeBytesPerBank: 0x80000 - 0xf000}))
		qt.Check(t, qt.Equals(*d.Regions.L1.FreeSpace, space.FreeSpace))

		peak := s.RegionPeaks()[0]
		qt.Check(t, qt.Equals(peak.Bytes, 0x11000))
		qt.Check(t, qt.Equals(peak.StaticBytes, 0xa000))
		var sum uint64
		for _, site := range peak.Holders {
			sum += site.Bytes
		}
		qt.Check(t, qt.Equals(sum, peak.Bytes-peak.StaticBytes))
	}
	check(s)
	restored := New()
	qt.Assert(t, qt.IsNil(restored.Restore(s.Checkpoint().State)))
	check(restored)

	for _, s := range []*State{s, restored} {
		s.Apply(&event.Event{TimeNs: 20, Kind: event.CBFree, PID: 1, ProgramID: 1})
		s.Apply(freed(10, 21))
		s.Apply(freed(13, 22))
		d := s.Snapshot().Devices[0]
		qt.Check(t, qt.Equals(d.L1PerCore.BufferBytes, 0x2000+0x5000))
		qt.Check(t, qt.Equals(s.RegionPeaks()[0].Bytes, 0x11000))
		s.Apply(&event.Event{TimeNs: 23, Kind: event.DeviceClose, PID: 1, Devices: []int{0}, Allocator: 1})
		d = s.Snapshot().Devices[0]
		qt.Check(t, qt.Equals(d.L1PerCore.BufferBytes, 0))
		qt.Check(t, qt.Equals(d.Regions.L1.BytesPerBank, 0))
		qt.Check(t, qt.Equals(s.RegionPeaks()[0].Bytes, 0x11000))
	}
}

// Nothing is claimed to be free where the addresses of a buffer differ from core to core, and
// a buffer whose cores are not known counts for no core.
func TestBuffersOnUnknownCores(t *testing.T) {
	s := perCoreState(everywhere(10, coreTop-0x2000, 0x2000), onCores(11, 0, 0x5000, nil, one(0, 0), one(1, 1)))
	qt.Check(t, qt.IsFalse(s.Space(0, event.L1).Known()))
	d := s.Snapshot().Devices[0]
	qt.Check(t, qt.IsNil(d.Regions.L1.FreeSpace))
	qt.Check(t, qt.Equals(d.Regions.L1.BytesPerBank, 0x7000))

	s.Apply(onCores(12, 0, 0x9000, nil))
	s.Apply(freed(11, 13))
	d = s.Snapshot().Devices[0]
	qt.Check(t, qt.IsNil(d.Regions.L1.FreeSpace))
	qt.Check(t, qt.Equals(d.Regions.L1.BytesPerBank, 0x2000))
	qt.Check(t, qt.Equals(d.Regions.L1.Buffers, 2))
	qt.Check(t, qt.Equals(s.Snapshot().Anomalies.UnknownCores, 1))
	s.Apply(freed(12, 14))
	qt.Check(t, qt.IsNotNil(s.Snapshot().Devices[0].Regions.L1.FreeSpace))
}

// A failed allocation beside buffers on single cores says what was free on all of them, and
// not which of them would have to go.
func TestFailureBesideBuffersOnSingleCores(t *testing.T) {
	fail := &event.Event{
		TimeNs: 30, Kind: event.AllocFailed, PID: 1, Devices: []int{0}, Region: event.L1, Allocator: 1,
		SizeBytes: 0x7c000 * 4, BytesPerBank: 0x7c000, Banks: 4, Reason: event.ReasonOutOfMemory,
	}
	s := perCoreState(onCores(10, coreTop-0x5000, 0x5000, nil, one(0, 0)), onCores(11, coreTop-0x5000, 0x5000, nil, one(1, 0)), fail)
	e := s.Snapshot().Failures[0].Evidence
	qt.Check(t, qt.IsTrue(e.PerCore))
	qt.Check(t, qt.Equals(e.FreeBytesPerBank, 0x7b000))
	qt.Check(t, qt.Equals(e.Live.BytesPerBank, 0x5000))
	qt.Check(t, qt.Equals(e.To, 0))

	// circular buffers meet the buffers of their cores alone
	place := &event.Event{
		TimeNs: 31, Kind: event.CBAlloc, PID: 1, Devices: []int{0}, ProgramID: 1, Address: coreTop - 0x80000,
		SizeBytes: 0x7e000, Cores: []event.CoreRange{one(1, 0)}, StaticKind: event.CircularBuffer,
	}
	s.Apply(place)
	clash := &event.Event{
		TimeNs: 32, Kind: event.AllocFailed, PID: 1, Devices: []int{0}, Region: event.CB, ProgramID: 1,
		StaticKind: event.CircularBuffer, Reason: event.ReasonStaticClash,
	}
	s.Apply(clash)
	met := s.Snapshot().Failures[1].Evidence
	qt.Check(t, qt.Equals(met.Blocking.Count, 1))
	qt.Check(t, qt.Equals(met.Lowest, coreTop-0x5000))

	fail.PerCore = true
	s.Apply(fail)
	e = s.Snapshot().Failures[2].Evidence
	qt.Check(t, qt.Equals(e.Capacity.Base, 0))
	qt.Check(t, qt.Equals(e.FreeBytesPerBank, 0))
}
