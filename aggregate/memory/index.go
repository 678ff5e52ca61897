package memory

import (
	"cmp"
	"strings"
)

// A Point is a place in a stream of events: right after the event with this Number. The first
// event has the number 1. Events that only some streams have are not counted: see
// event.Event.IsImplied.
type Point struct{ Number, TimeNs uint64 }

// An Index has the positions of the marks, failures and peaks in a stream of events. It is part
// of a State, and therefore of every checkpoint: the last checkpoint of a recording and the
// events after it have all positions, also if the recorder was killed.
type Index struct {
	// First is the time of the first event.
	First uint64
	// Begin is the last of the events that report allocations from before the beginning.
	Begin Point
	// Marks are in order. After MarksFrom none is missing; before it only the newest are
	// known.
	Marks     []Mark
	MarksFrom uint64
	// Failures are the same for failed allocations.
	Failures     []FailurePoint
	FailuresFrom uint64
	// Peaks are those of all regions that were ever used.
	Peaks []PeakPoint
}

// A FailurePoint is a failed allocation of a process.
type FailurePoint struct {
	Point
	PID int
}

// A Mark never changes.
type Mark struct {
	TimeNs uint64
	Name   string
	// Number is the mark's own: see Point.
	Number uint64
	UID    int // of the user who set it
	Sharer int // to whom it counts where users have shares
}

// Origin returns to whom the mark counts, and its number.
func (m Mark) Origin() (sharer int, number uint64) { return cmp.Or(m.Sharer, m.UID), m.Number }

// The ends of the names of marks for steps, which ttmem steps and the pytest plugin set.
const (
	StepBegin = " (begin)"
	StepEnd   = " (end)"
)

// ReadingMark is the mark at which figures are read between two events, as by memory_allocated() of the Python package.
// A program may set thousands, so no list of marks has it.
const ReadingMark = "figures read" + StepEnd

// IsStepMark reports whether a mark is the beginning or the end of a step, such as a test.
func IsStepMark(name string) bool {
	return strings.HasSuffix(name, StepBegin) || strings.HasSuffix(name, StepEnd)
}
