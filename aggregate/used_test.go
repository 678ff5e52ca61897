package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/uses"
	"ttmem/tracer/event"
)

// usesOf applies the events, and returns how often each buffer of process 7 was used.
func usesOf(t *testing.T, events ...event.Event) (*aggregate.State, map[uint64]uint64) {
	t.Helper()
	s := aggregate.New()
	for i := range events {
		events[i].TimeNs, events[i].PID = uint64(i+1), 7
		s.Apply(&events[i])
	}
	counts := make(map[uint64]uint64)
	for _, b := range s.Buffers() {
		if use, _, known := s.UseOf(7, b.BufferID); known {
			counts[b.BufferID] = use.Count
		}
	}
	return s, counts
}

func used(chip int, program uint64, arguments, statics []uint32) event.Event {
	return event.Event{Kind: event.ProgramRun, Devices: []int{chip}, ProgramID: program, Uses: &event.Uses{Arguments: arguments, Statics: statics}}
}

func born(chip int, allocator, id uint64, region event.Region, address uint64) event.Event {
	return event.Event{
		Kind: event.Alloc, Devices: []int{chip}, Allocator: allocator, BufferID: id, Region: region, Address: address,
		SizeBytes: 4096, BytesPerBank: 1024, Banks: 4,
	}
}

func TestUsesOfLiveBuffers(t *testing.T) {
	list := func(at ...uint32) []uint32 { return at }
	s, counts := usesOf(t,
		born(0, 1, 1, event.DRAM, 0x100040),
		born(1, 2, 2, event.DRAM, 0x100040),                                  // another chip
		event.Event{Kind: event.ProgramRun, Devices: []int{0}, ProgramID: 5}, // not recorded
		used(0, 5, list(0x100040, 0x200000), nil),
		born(0, 1, 3, event.L1, 0x110000),
		used(0, 6, list(0x110000), list(0x110200)), // once
		used(0, 5, list(0x100040), list(0x200000)),
		event.Event{Kind: event.Free, BufferID: 1, Reason: event.ReasonExplicit},
		born(0, 1, 4, event.DRAM, 0x100040), // in its place
		used(0, 5, list(0x100040), nil),
	)
	qt.Check(t, qt.DeepEquals(counts, map[uint64]uint64{2: 0, 3: 1, 4: 1}))
	use, _, _ := s.UseOf(7, 4)
	qt.Check(t, qt.Equals(use.First, uses.Moment{Run: 4, TimeNs: 10}))
	qt.Check(t, qt.Equals(s.UsesOf(7), 1))
	_, _, known := s.UseOf(8, 4)
	qt.Check(t, qt.IsFalse(known))
}

// If several allocators of a chip have a buffer at an address, it is not known which one is used.
func TestUsesOfSeveralAllocatorsAreNotCertain(t *testing.T) {
	list := []uint32{0x110000}
	s, counts := usesOf(t, born(0, 1, 1, event.L1, 0x110000), used(0, 5, list, nil), born(0, 2, 2, event.L1, 0x110000), used(0, 5, list, list))
	qt.Check(t, qt.ContentEquals(s.PossibleUses(7), []uint64{1, 2, 1, 2})) // in any order
	qt.Check(t, qt.DeepEquals(counts, map[uint64]uint64{1: 1, 2: 0}))
}

// A run that the library refuses uses nothing.
func TestRefusedRunsUseNothing(t *testing.T) {
	list := []uint32{0x100040}
	refused := event.Event{Kind: event.AllocFailed, Devices: []int{0}, Region: event.CB, ProgramID: 6, Reason: event.ReasonStaticClash}
	_, counts := usesOf(t, born(0, 1, 1, event.DRAM, 0x100040), used(0, 5, list, nil), used(0, 6, list, nil), refused)
	qt.Check(t, qt.DeepEquals(counts, map[uint64]uint64{1: 1}))
}

// The uses of buffers end with their allocator.
func TestUsesEndWithTheDevice(t *testing.T) {
	list := []uint32{0x100040}
	_, counts := usesOf(t, born(0, 1, 1, event.DRAM, 0x100040), used(0, 5, list, nil),
		event.Event{Kind: event.DeviceClose, Devices: []int{0}, Allocator: 1}, born(0, 1, 1, event.DRAM, 0x100040), used(0, 5, list, nil))
	qt.Check(t, qt.DeepEquals(counts, map[uint64]uint64{1: 1}))
}

// What the host writes or reads is used.
func TestTheHostUsesBuffers(t *testing.T) {
	s, counts := usesOf(t, born(0, 1, 1, event.DRAM, 0x100040), event.Event{Kind: event.BufferWrite, Devices: []int{0}, BufferID: 1},
		event.Event{Kind: event.BufferRead, Devices: []int{0}, BufferID: 2}, used(0, 5, []uint32{0x100040}, nil), event.Event{Kind: event.BufferRead, BufferID: 1})
	qt.Check(t, qt.DeepEquals(counts, map[uint64]uint64{1: 3}))
	use, _, _ := s.UseOf(7, 1)
	qt.Check(t, qt.Equals(use, uses.Use{Count: 3, First: uses.Moment{TimeNs: 2}, Last: uses.Moment{Run: 1, TimeNs: 5}}))
}

// Recordings from before uses were recorded know none.
func TestUsesAreNotKnown(t *testing.T) {
	_, counts := usesOf(t, born(0, 1, 1, event.DRAM, 0x100040), event.Event{Kind: event.ProgramRun, Devices: []int{0}, ProgramID: 5})
	qt.Check(t, qt.HasLen(counts, 0))
}
