package aggregate

import (
	"cmp"
	"encoding/binary"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// beginning is what a State needs to know where its stream begins.
type beginning struct {
	// point is the last event that reports what was there before anything happened, and
	// over is true once something has happened. To read the memory of processes that
	// already run takes a while, in which they go on.
	point memory.Point
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
	b.point = memory.Point{Number: s.applied, TimeNs: s.now}
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
func (s *State) Index() memory.Index {
	x := memory.Index{First: s.first, Begin: s.beginning.point}
	x.Marks, x.MarksFrom = s.marks.merged(&s.callMarks)
	failures := s.failures.newest()
	if s.failures.count > uint64(len(failures)) && len(failures) > 0 {
		x.FailuresFrom = failures[0].Number - 1
	}
	for i := range failures {
		x.Failures = append(x.Failures, memory.FailurePoint{
			Point: memory.Point{Number: failures[i].Number, TimeNs: failures[i].TimeNs},
			PID:   failures[i].PID,
		})
	}
	for _, q := range s.allPools() {
		if q.chip != nil && q.peak.bytes > 0 {
			x.Peaks = append(x.Peaks, memory.PeakPoint{
				Point:  memory.Point{Number: q.peak.number, TimeNs: q.peak.time},
				Device: q.chip.id, Region: q.region,
			})
		}
	}
	return x
}

// maxMarks is the number of marks of users that a State keeps, and of --mark-at: the newest.
const maxMarks = 1000

// marks are the newest marks, oldest first. The list only grows at its end, so that
// checkpoints may share it. count is how many there were in all.
type marks struct {
	count uint64
	list  []memory.Mark
}

func (m *marks) add(one memory.Mark) {
	m.count++
	if len(m.list) == 2*maxMarks {
		m.list = slices.Clone(m.list[maxMarks:])
	}
	m.list = append(m.list, one)
}

// newest are those that are kept.
func (m *marks) newest() []memory.Mark { return slices.Clip(newest(m.list)) }

// from is the number after which no mark is missing.
func (m *marks) from() uint64 {
	if kept := m.newest(); m.count > uint64(len(kept)) && len(kept) > 0 {
		return kept[0].Number - 1
	}
	return 0
}

// merged are the marks of both, in order, and the number after which none is missing.
func (m *marks) merged(other *marks) (list []memory.Mark, from uint64) {
	list = slices.Concat(m.newest(), other.newest())
	slices.SortStableFunc(list, func(a, b memory.Mark) int { return cmp.Compare(a.Number, b.Number) })
	return list, max(m.from(), other.from())
}

// mark keeps a mark. Those of --mark-at may be of every call of a function, and do not
// displace those that users set.
func (s *State) mark(e *event.Event) {
	of := &s.marks
	if e.PID != 0 {
		of = &s.callMarks
	}
	of.add(memory.Mark{TimeNs: e.TimeNs, Name: e.Cause, Number: s.applied, UID: e.UID})
}

// Marks are the newest that users set, oldest first. They must not be changed.
func (s *State) Marks() []memory.Mark { return s.marks.newest() }
