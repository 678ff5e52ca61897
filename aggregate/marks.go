package aggregate

import (
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// keptMarks is how many marks a State remembers, for who joins later: the newest.
const keptMarks = 1000

// A mark is one that a user set. It never changes.
type mark struct {
	timeNs uint64
	name   string
	uid    int
}

// mark remembers a mark, but for those of --mark-at, which may be of every call of a
// function.
func (s *State) mark(e *event.Event) {
	if e.PID != 0 {
		return
	}
	if len(s.marks) == 2*keptMarks {
		s.marks = slices.Clone(s.marks[keptMarks:])
	}
	s.marks = append(s.marks, mark{e.TimeNs, e.Cause, e.UID})
}

// marks tells of the marks of users.
func (c *collector) marks(list []mark, wanted func(uid int) bool) {
	list = list[max(0, len(list)-keptMarks):]
	for i := range list {
		if m := &list[i]; wanted(m.uid) {
			c.step++
			c.among(m.timeNs, 0, m)
		}
	}
}

// tell makes a Mark that is known to be of before: what was freed since is not told.
func (m *mark) tell(e *event.Event) {
	e.Kind, e.Cause, e.UID, e.BeforeAttach = event.Mark, m.name, m.uid, true
}

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
