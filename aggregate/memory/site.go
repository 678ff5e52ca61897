package memory

import (
	"cmp"
	"encoding/binary"
	"slices"

	"ttmem/tracer/event"
)

// A Site is a call site: one call stack of a process that allocates in one region of the
// same chips.
type Site struct {
	PID    int
	Stack  *event.Stack // nil if it is not known
	Region event.Region
	// Layout is set for buffers, and Static for circular buffers; it is NotStatic for buffers.
	Layout event.Layout
	Static event.StaticKind
	// BeforeAttach marks allocations from before the attach.
	BeforeAttach bool
	// PerCore marks buffers that are on single cores.
	PerCore bool
	// Devices are the chips that each buffer is on. They must not be modified.
	Devices []int
}

// A SiteKey identifies a Site, also in other States of the same recording, in which equal
// stacks have equal IDs.
type SiteKey struct {
	stackID               uint64 // 0: not known
	region                event.Region
	layout                event.Layout
	static                event.StaticKind
	beforeAttach, perCore bool
	pid                   int
	devices               string
}

// Key returns the key of the site.
func (s *Site) Key() SiteKey { return s.KeyOn(DevicesKey(s.Devices)) }

// KeyOn is Key for a caller that has the DevicesKey of the site.
func (s *Site) KeyOn(devices string) SiteKey {
	return SiteKey{StackID(s.Stack), s.Region, s.Layout, s.Static, s.BeforeAttach, s.PerCore, s.PID, devices}
}

// Compare orders sites.
func (s *Site) Compare(b *Site) int {
	return cmp.Or(
		cmp.Compare(s.PID, b.PID), cmp.Compare(StackID(s.Stack), StackID(b.Stack)),
		cmp.Compare(s.Region, b.Region), cmp.Compare(s.Layout, b.Layout), cmp.Compare(s.Static, b.Static),
		slices.Compare(s.Devices, b.Devices), CompareBools(s.BeforeAttach, b.BeforeAttach), CompareBools(s.PerCore, b.PerCore),
	)
}

// DevicesKey returns the same string for the same chips.
func DevicesKey(ids []int) string {
	key := make([]byte, 0, 64)
	for _, id := range ids {
		key = binary.AppendUvarint(key, uint64(id))
	}
	return string(key)
}

// A SiteAmount is a call site with the number of its allocations and their bytes on each of the
// chips, in all banks or on all cores. At a peak of L1 they are per core.
type SiteAmount struct {
	Site
	Amount
}

// A ProgramShare is what a program has from one call site on its fullest core.
type ProgramShare struct{ ID, BytesPerCore uint64 }

// A CallSite is a call site with its live allocations, on each of the chips.
type CallSite struct {
	SiteAmount
	// Fresh counts the live allocations that were made after State.FreshSince.
	Fresh Amount
	// Allocated counts all allocations so far, and Ended those that were live when their device
	// was closed or their process ended.
	Allocated, Ended Amount
	// AtPeak are the allocations at the peak of the region on each of the chips.
	AtPeak []SiteAtPeak
	// Programs are those with live circular buffers of the site, on each of the chips, in order of
	// their ids. They use the same space in turn.
	Programs []ProgramShare
	// SinceNs is the time since when there was always a live allocation.
	SinceNs uint64
}

// A SiteAtPeak counts the allocations of a call site that were live at the peak of its region on a
// chip, in all banks or on all cores. Circular buffers are in L1, and kernels in DRAM.
type SiteAtPeak struct {
	// Device is the chip's id, or NoDevice. Number is the number of the peak's event: see Point.
	Device int
	Number uint64
	Amount
}

// StackID returns the ID of a stack; 0 if there is none.
func StackID(s *event.Stack) uint64 {
	if s == nil {
		return 0
	}
	return s.ID
}

// CompareBools orders true before false.
func CompareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
