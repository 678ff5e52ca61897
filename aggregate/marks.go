package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

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
