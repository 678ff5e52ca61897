package aggregate

import (
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// keptMarks is how many marks a State remembers, for who joins later: the newest.
const keptMarks = 1000

// A Mark is one that a user set. It never changes.
type Mark struct {
	TimeNs uint64
	Name   string
	// number is how many events there were by then, with this one.
	number uint64
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
	s.marks = append(s.marks, Mark{TimeNs: e.TimeNs, Name: e.Cause, number: s.applied, uid: e.UID})
}

// Marks are the newest that users set, oldest first. They must not be changed.
func (s *State) Marks() []Mark { return newest(s.marks) }

// MarksOf are the names of the marks that users had set before a Checkpoint, each once.
func MarksOf(e *event.Event) (names []string) {
	s := New()
	if s.Restore(e.State) != nil {
		return nil
	}
	for i := range s.marks {
		if !slices.Contains(names, s.marks[i].Name) {
			names = append(names, s.marks[i].Name)
		}
	}
	return names
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
