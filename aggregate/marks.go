package aggregate

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// maxMarks is the number of marks of users that a State keeps, and of --mark-at: the newest.
const maxMarks = 1000

// A Mark never changes.
type Mark struct {
	TimeNs uint64
	Name   string
	// Number is the mark's own: see Point.
	Number uint64
	uid    int
}

// marks are the newest marks, oldest first. The list only grows at its end, so that
// checkpoints may share it. count is how many there were in all.
type marks struct {
	count uint64
	list  []Mark
}

func (m *marks) add(one Mark) {
	m.count++
	if len(m.list) == 2*maxMarks {
		m.list = slices.Clone(m.list[maxMarks:])
	}
	m.list = append(m.list, one)
}

// newest are those that are kept.
func (m *marks) newest() []Mark { return slices.Clip(newest(m.list)) }

// from is the number after which no mark is missing.
func (m *marks) from() uint64 {
	if kept := m.newest(); m.count > uint64(len(kept)) && len(kept) > 0 {
		return kept[0].Number - 1
	}
	return 0
}

// merged are the marks of both, in order, and the number after which none is missing.
func (m *marks) merged(other *marks) (list []Mark, from uint64) {
	list = slices.Concat(m.newest(), other.newest())
	slices.SortStableFunc(list, func(a, b Mark) int { return cmp.Compare(a.Number, b.Number) })
	return list, max(m.from(), other.from())
}

// mark keeps a mark. Those of --mark-at may be of every call of a function, and do not
// displace those that users set.
func (s *State) mark(e *event.Event) {
	of := &s.marks
	if e.PID != 0 {
		of = &s.callMarks
	}
	of.add(Mark{TimeNs: e.TimeNs, Name: e.Cause, Number: s.applied, uid: e.UID})
}

// Marks are the newest that users set, oldest first. They must not be changed.
func (s *State) Marks() []Mark { return s.marks.newest() }

// What the names of the marks of steps end with: ttmem steps places them, and the pytest
// plugin by it.
const (
	StepBegin = " (begin)"
	StepEnd   = " (end)"
)

// IsStepMark reports whether a mark is the beginning or the end of a step, such as a test.
func IsStepMark(name string) bool {
	return strings.HasSuffix(name, StepBegin) || strings.HasSuffix(name, StepEnd)
}
