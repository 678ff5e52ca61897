// Package between follows the survivors between two marks.
package between

import (
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/leaks"
	"ttmem/cmd/ttmem/source"
	"ttmem/tracer/event"
)

// A Range is the two marks between which to search leaks. A mark without a name is the beginning,
// or the end; the zero value is the whole run.
type Range struct {
	From, To source.Moment
}

// Whole reports whether no marks are given.
func (r *Range) Whole() bool { return r.From.Name == "" && r.To.Name == "" }

// maxMarks is the maximum number of marks shown: beyond it, every second one is left out.
const maxMarks = 1024

// A Follower makes the state follow the survivors between two marks.
type Follower struct {
	Range
	State *aggregate.State
	// marks are the marks from the first one of the range on, and end is the second one; nil if
	// they have not come yet.
	marks []leaks.Mark
	end   *leaks.Mark
	// LostBefore is the number of events lost before the range begins, and began the number of
	// the last event before the first known one.
	LostBefore, began uint64
	// fromSeen and toSeen count the marks that have the names of the range.
	fromSeen, toSeen int
	// Earlier is true if the first mark is before the beginning, and over if the second one is,
	// unless the memory at that time is known. Known is true if both are before the beginning and
	// that is known.
	Earlier, Known, over bool
}

// New follows an empty state.
func New(r Range) *Follower { return &Follower{Range: r, State: aggregate.New()} }

// Apply applies an event to the state.
func (m *Follower) Apply(e *event.Event) {
	if e.Kind == event.Checkpoint { // it has the earlier marks
		m.State.Apply(e)
		*m = Follower{Range: m.Range, State: m.State, began: m.State.Number(), LostBefore: m.State.Snapshot().LostEvents}
	}
	if m.marks == nil && m.From.Name == "" && m.To.Name != "" {
		m.follow(leaks.Mark{})
	}
	switch e.Kind {
	case event.Checkpoint:
		for _, one := range m.State.Marks() {
			m.mark(leaks.Mark{Name: one.Name, TimeNs: one.TimeNs}, !m.State.KnowsAt(&one))
		}
		m.Known = m.end != nil
		if m.marks != nil {
			m.LostBefore = 0 // the range begins earlier
		}
		return
	case event.Mark:
		m.mark(leaks.Mark{Name: e.Cause, TimeNs: e.TimeNs}, false)
	}
	m.State.Apply(e)
}

// follow begins the range with a mark; the zero value is the beginning.
func (m *Follower) follow(first leaks.Mark) {
	m.marks = []leaks.Mark{first}
	m.State.FollowFrom(first.TimeNs)
}

// mark takes a mark; earlier is true for a mark before the beginning at which not everything is
// known.
func (m *Follower) mark(one leaks.Mark, earlier bool) {
	isFrom, isTo := m.From.Name != "" && one.Name == m.From.Name, m.To.Name != "" && one.Name == m.To.Name
	if isFrom {
		m.fromSeen++
		isFrom = m.marks == nil && m.fromSeen >= m.From.Nth
	}
	if isTo {
		m.toSeen++
		isTo = m.To.Nth == 0 || m.toSeen == m.To.Nth
	}
	switch {
	case m.passesOver(one.Name):
	case isFrom:
		m.Earlier = earlier
		m.follow(one)
	case earlier:
		m.over = m.over || isTo && (m.marks != nil || m.From.Name == "")
	case m.marks != nil:
		m.marks = append(m.marks, one)
		if isTo {
			m.end = &one
			m.State.FollowTo(one.TimeNs)
		}
		if len(m.marks) > maxMarks {
			m.marks = everySecond(m.marks)
		}
	}
}

// passesOver reports whether a mark belongs to a step, unless the range names such marks.
func (m *Follower) passesOver(name string) bool {
	return memory.IsStepMark(name) && !memory.IsStepMark(m.From.Name) && !memory.IsStepMark(m.To.Name)
}

// Unused returns how many marks were not used: those of steps, or the others, from before the
// beginning.
func (m *Follower) Unused(ofSteps bool) (n int) {
	for _, one := range m.State.Marks() {
		if of := m.passesOver(one.Name); of == ofSteps && of == (one.Number > m.began) {
			n++
		}
	}
	return n
}

// everySecond leaves out every second mark, but not the first one.
func everySecond(marks []leaks.Mark) []leaks.Mark {
	kept := marks[:0]
	for i := 0; i < len(marks); i += 2 {
		kept = append(kept, marks[i])
	}
	return kept
}

// Marks returns the marks of the range; nil if marks do not matter and none are shown.
func (m *Follower) Marks() []leaks.Mark {
	if m.marks == nil {
		return nil
	}
	end := leaks.Mark{TimeNs: m.State.Now()}
	if m.end != nil {
		end = *m.end
	}
	before := slices.DeleteFunc(slices.Clone(m.marks[1:]), func(one leaks.Mark) bool { return one.TimeNs > end.TimeNs || one == end })
	marks := slices.Concat(m.marks[:1], before, []leaks.Mark{end})
	if marks[0].Name == "" {
		marks[0].TimeNs = min(m.firstNs(), marks[1].TimeNs) - 1 // before the first allocation
	}
	return marks
}

// firstNs returns the time of the first allocation of a process with survivors.
func (m *Follower) firstNs() uint64 {
	first := m.State.Now()
	survivors, _ := m.State.Survivors()
	for i := range survivors {
		first = min(first, survivors[i].WorkedFromNs)
	}
	return first
}

// Done reports whether no later event changes anything.
func (m *Follower) Done() bool { return m.over || m.Known }

// An EarlierMarkError means that the second mark is before the first known event.
type EarlierMarkError struct{ Mark string }

func (e *EarlierMarkError) Error() string {
	return fmt.Sprintf("the mark %q lies before the beginning: the memory at that time is not known", e.Mark)
}

// Check returns an error if a mark of the range was not seen.
func (m *Follower) Check() error {
	switch {
	case m.over:
		return &EarlierMarkError{m.To.MarkName()}
	case m.From.Name != "" && m.marks == nil:
		return m.missing(m.From, m.fromSeen)
	case m.To.Name == "" || m.end != nil:
		return nil
	case m.toSeen > 0 && m.toSeen >= m.To.Nth:
		return fmt.Errorf("no mark %q after the mark %q: --to has to be later than --from", m.To.MarkName(), m.From.MarkName())
	}
	return m.missing(m.To, m.toSeen)
}

// missing returns an error that names the marks that were seen.
func (m *Follower) missing(of source.Moment, seen int) error {
	mark := of.MarkName()
	var names []string
	for _, one := range m.State.Index().Marks {
		if name := page.Clean(one.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("no mark %q: there are no marks; `ttmem mark NAME` sets one while a program runs", mark)
	case seen > 0:
		return fmt.Errorf("no mark %q: there are %d of that name", mark, seen)
	}
	return fmt.Errorf("no mark %q: there are %s", mark, page.Some(names, "mark"))
}
