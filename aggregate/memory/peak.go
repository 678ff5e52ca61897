package memory

import (
	"ttmem/tracer/event"
)

// A PeakPoint is the peak of one region of one chip. All sizes are in bytes of the region;
// those of L1 are per core.
type PeakPoint struct {
	// Point is the first moment with that many Bytes; zero if the region was never used.
	Point
	Device int
	Region event.Region
	Bytes  uint64
	// CapacityBytes is the capacity at that time, or the present one if it was not known
	// then; 0 if it is not known.
	CapacityBytes uint64
}

// A RegionPeak is a peak with what was live then.
type RegionPeak struct {
	PeakPoint
	// StaticBytes is the part of the program that ran at that time, whose parts Programs are. The
	// rest is the sum of the Holders. Only L1 has it.
	StaticBytes uint64
	// AtLeast is true if programs may have run that were not reported. Only L1 has it.
	AtLeast bool
	// Holders are the call sites, most bytes first. Programs are in the same order.
	Holders  []SiteAmount
	Programs []PeakProgram
	// OthersBytes is the part of users whose call sites are not known. OthersStaticBytes is the memory
	// of their program.
	OthersBytes, OthersStaticBytes uint64
	// Earlier is a higher peak before the state's first event; nil if there is none.
	Earlier *EarlierPeak
	// Timeline shows Bytes over time, and StaticTimeline shows StaticBytes.
	Timeline, StaticTimeline *Timeline
}

// A PeakProgram has the circular buffers of one kind and call stack of the program that ran at a
// peak, on the fullest core.
type PeakProgram struct {
	PID          int
	ProgramID    uint64
	Kind         event.StaticKind
	Stack        *event.Stack // nil if it is not known
	BeforeAttach bool
	Count, Bytes uint64
}

// An EarlierPeak is a peak from a checkpoint, without its holders.
type EarlierPeak struct{ TimeNs, Bytes, CapacityBytes uint64 }

// A RegionTimeline is the use of one region of one chip over time. All sizes are in bytes of
// the region; those of L1 are per core.
type RegionTimeline struct {
	Device int
	Region event.Region
	// Timeline has the use of the whole region, and Static the part of circular and dataflow
	// buffers.
	Timeline, Static *Timeline
}
