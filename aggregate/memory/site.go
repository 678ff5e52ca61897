package memory

import (
	"encoding/binary"

	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// A Site is a call site: one call stack of a process that allocates in one region of the
// same chips.
type Site struct {
	PID    int
	Stack  *event.Stack // nil if it is not known
	Region event.Region
	// Layout is that of buffers, and Static the kind of circular buffers; NotStatic for
	// buffers.
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
func (s *Site) Key() SiteKey {
	return SiteKey{
		StackID(s.Stack), s.Region, s.Layout, s.Static, s.BeforeAttach, s.PerCore, s.PID, DevicesKey(s.Devices),
	}
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

// A CallSite is a call site with its live allocations.
type CallSite struct {
	SiteAmount
	// Fresh counts the live allocations that were made after State.FreshSince.
	Fresh Amount
	// Places are where live circular buffers are on each of the chips, each place once, in
	// order of address: programs use the same space in turn.
	Places []cores.Place
	// EachBytes is the size of every live allocation on each chip; 0 if the sizes differ.
	EachBytes uint64
	// Allocated is the number of all allocations so far.
	Allocated uint64
	// SinceNs is the time since when there was always a live allocation.
	SinceNs uint64
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
