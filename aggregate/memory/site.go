package memory

import (
	"encoding/binary"

	"ttmem/tracer/event"
)

// A Site is a call site: one call stack of a process that allocates in one region of the
// same chips.
type Site struct {
	PID    int
	Stack  *event.Stack // nil where that is not known
	Region event.Region
	// Layout is that of buffers, and Static the kind of circular buffers; NotStatic for
	// buffers.
	Layout event.Layout
	Static event.StaticKind
	// BeforeAttach marks what was there before the process was attached.
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

// A SiteAmount is what one call site has, with the bytes on each of the chips: of all banks,
// or all cores. At a peak of L1 they are per core.
type SiteAmount struct {
	Site
	Amount
}

// A CallSite is what one call site has live, and what it allocated.
type CallSite struct {
	SiteAmount
	// Fresh is the live part that was allocated after MarkFresh.
	Fresh Amount
	// EachBytes is what each takes on each of the chips; 0 where that differs.
	EachBytes uint64
	// Allocated is how many were allocated in all.
	Allocated uint64
	// SinceNs is since when there was one at any time.
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
