package memory

import (
	"ttmem/aggregate/timeline"
	"ttmem/tracer/event"
)

// A RegionPeak is one region of one chip when it was fullest. All in bytes of the
// region: those of L1 are per core.
type RegionPeak struct {
	Device int
	Region event.Region
	// TimeNs is the first moment at which there were that many Bytes; 0 where there
	// was never anything.
	TimeNs, Bytes uint64
	// CapacityBytes is what the region could hold then, or can now where that was not
	// known yet; 0 where it is not known.
	CapacityBytes uint64
	// StaticBytes is the part that circular and dataflow buffers took, which Programs
	// shared, and the rest is the sum of the Holders. In L1 alone.
	StaticBytes uint64
	// Holders are what each call site had, most bytes first. Programs are in the same
	// order.
	Holders  []SiteAmount
	Programs []PeakProgram
	// Earlier is a higher peak before the state's first event, of which a checkpoint has
	// no more than this; nil where there is none.
	Earlier *EarlierPeak
	// Timeline is of what Bytes counts, and StaticTimeline of StaticBytes.
	Timeline, StaticTimeline *timeline.Timeline
}

// A PeakProgram is what one call stack had placed for a program at a peak, on the core
// where all circular buffers together took most. Programs use the same space one after
// the other, so that their bytes do not add up.
type PeakProgram struct {
	PID          int
	ProgramID    uint64
	Kind         event.StaticKind
	Stack        *event.Stack // nil where that is not known
	BeforeAttach bool
	Count, Bytes uint64
}

// An EarlierPeak is one of which nothing is known but this.
type EarlierPeak struct{ TimeNs, Bytes, CapacityBytes uint64 }
