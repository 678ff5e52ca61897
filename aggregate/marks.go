package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// keptMarks is how many marks a State remembers, for who joins later: the newest.
const keptMarks = 1000

// A mark is one that a user set. It never changes.
type mark struct {
	timeNs uint64
	// number is how many events there were by then, with this one.
	number uint64
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
	s.marks = append(s.marks, mark{e.TimeNs, s.applied, e.Cause, e.UID})
}

// MarksOf are the names of the marks that users had set before a Checkpoint, each once.
func MarksOf(e *event.Event) (names []string) {
	s := New()
	if s.Restore(e.State) != nil {
		return nil
	}
	for i := range s.marks {
		if !slices.Contains(names, s.marks[i].name) {
			names = append(names, s.marks[i].name)
		}
	}
	return names
}
