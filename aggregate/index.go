package aggregate

import (
	"encoding/binary"

	"ttmem/tracer/event"
)

// A Point is a place in a stream of events: right after the event with the number Number,
// the first of which is 1. Events that only some streams have are not counted: see
// isImplied.
type Point struct{ Number, TimeNs uint64 }

// An Index says where the moments of a stream of events are. It is part of a State, and
// therefore of every checkpoint: the last checkpoint of a recording and the events after it
// say where everything is, also if the recorder was killed.
type Index struct {
	// First is the time of the first event.
	First uint64
	// Begin is the last event that reports what was there before anything happened.
	Begin Point
	// Marks are in order. After MarksFrom none is missing; before it only the newest are
	// known.
	Marks     []Mark
	MarksFrom uint64
	// Failures are the same for failed allocations.
	Failures     []FailurePoint
	FailuresFrom uint64
	// Peaks are those of the regions that ever had anything.
	Peaks []PeakPoint
}

// A FailurePoint is a failed allocation of a process.
type FailurePoint struct {
	Point
	PID int
}

// A PeakPoint is the peak of a region of a chip.
type PeakPoint struct {
	Point
	Device int
	Region event.Region
}

// beginning is what a State needs to know where its stream begins.
type beginning struct {
	// point is the last event that reports what was there before anything happened, and
	// over is true once something has happened. To read the memory of processes that
	// already run takes a while, in which they go on.
	point Point
	over  bool
}

// follow takes an event that was applied.
func (b *beginning) follow(s *State, e *event.Event) {
	switch {
	case !b.over && !happens(e):
	case !b.over:
		b.over = true
		return
	case !e.BeforeAttach:
		return
	default:
		if p := s.known(e.PID); p == nil || !p.fromBegin {
			return
		}
	}
	b.point = Point{s.applied, s.now}
}

// happens reports whether the event changes what is allocated, and does not report what was
// there before.
func happens(e *event.Event) bool {
	return e.Kind >= event.Alloc && e.Kind <= event.KernelUnload && !e.BeforeAttach
}

// Number is how many events were applied, as a Point counts them.
func (s *State) Number() uint64 { return s.applied }

// Now is the time of the latest event.
func (s *State) Now() uint64 { return s.now }

// NumberOf is how many events there were before a Checkpoint. It does not restore it.
func NumberOf(e *event.Event) (number uint64) {
	if e.State == nil || len(e.State.Data) < 2 {
		return 0
	}
	b := e.State.Data[2:] // after the version, and whether it is partial
	for range 3 {         // now, first and applied
		n := 0
		if number, n = binary.Uvarint(b); n <= 0 {
			return 0
		}
		b = b[n:]
	}
	return number
}

// Index is where the moments of the events are. It must not be changed.
func (s *State) Index() Index {
	x := Index{First: s.first, Begin: s.beginning.point}
	x.Marks, x.MarksFrom = s.marks.merged(&s.callMarks)
	failures := s.failures.newest()
	if s.failures.count > uint64(len(failures)) && len(failures) > 0 {
		x.FailuresFrom = failures[0].number - 1
	}
	for i := range failures {
		x.Failures = append(x.Failures, FailurePoint{Point{failures[i].number, failures[i].TimeNs}, failures[i].PID})
	}
	for _, q := range s.allPools() {
		if q.chip != nil && q.peak.bytes > 0 {
			x.Peaks = append(x.Peaks, PeakPoint{Point{q.peak.number, q.peak.time}, q.chip.id, q.region})
		}
	}
	return x
}
