package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// beginning says where a State's stream of events begins.
type beginning struct {
	// point is the last event that reports an allocation from before the beginning, and over
	// is true after the first other event. Reading the memory of running processes takes a
	// while, and they go on meanwhile.
	point memory.Point
	over  bool
}

// follow takes an event that was applied.
func (b *beginning) follow(s *State, e *event.Event) {
	switch {
	case !b.over && !e.Happens():
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
	b.point = memory.Point{Number: s.applied, TimeNs: s.now}
}

// Number returns the number of events that were applied, as a Point counts them.
func (s *State) Number() uint64 { return s.applied }

// Now returns the time of the latest event.
func (s *State) Now() uint64 { return s.now }

// NumberOf returns the number of events before a Checkpoint, without restoring it.
func NumberOf(e *event.Event) (number uint64) {
	if e.State == nil || len(e.State.Data) < 2 {
		return 0
	}
	var now, first uint64
	c := codec.NewReader(e.State.Data[2:], nil) // after the version, and whether it is partial
	c.Uints(&now, &first, &number)
	return number
}

// Index returns the positions of marks, failures and peaks. It must not be changed.
func (s *State) Index() memory.Index {
	s.settle()
	x := memory.Index{First: s.first, Begin: s.beginning.point}
	x.Marks = slices.Concat(s.marks.List(), s.ownMarks.List())
	slices.SortStableFunc(x.Marks, func(a, b memory.Mark) int { return cmp.Compare(a.Number, b.Number) })
	x.MarksFrom = max(s.marks.CompleteFrom(), s.ownMarks.CompleteFrom())
	for _, f := range s.failures.List() {
		x.Failures = append(x.Failures, memory.FailurePoint{Point: memory.Point{Number: f.Number, TimeNs: f.TimeNs}, PID: f.PID})
	}
	x.FailuresFrom = s.failures.CompleteFrom()
	x.Peaks = peakPoints(s.byID()...)
	return x
}

// mark adds a mark, unless figures are only read at it. Those that processes set themselves may be many, and do not
// displace those that users set.
func (s *State) mark(e *event.Event) {
	of := &s.marks
	switch {
	case e.PID != 0:
		of = &s.ownMarks
	case e.Cause == memory.ReadingMark:
		return
	}
	of.Add(memory.Mark{TimeNs: e.TimeNs, Name: e.Cause, Number: s.applied, UID: e.UID, Sharer: e.CountsTo()})
}

// Marks returns the newest marks that users set, oldest first. They must not be changed.
func (s *State) Marks() []memory.Mark { return s.marks.List() }
