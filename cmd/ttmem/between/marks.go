// Package between follows what survives between two marks.
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

// A Range is the two marks between which leaks are searched. One without a name is the beginning, or
// the end; the zero value is the whole run.
type Range struct {
	From, To source.Moment
}

// Whole reports whether no marks are given.
func (r *Range) Whole() bool { return r.From.Name == "" && r.To.Name == "" }

// maxMarks is how many marks are shown: of more every second one is left out.
const maxMarks = 1024

// A Follower has the state follow what survives between two marks.
type Follower struct {
	Range
	State *aggregate.State
	// marks are those from the first one of the range on, and end is the second one; nil
	// where these have not come.
	marks []leaks.Mark
	end   *leaks.Mark
	// LostBefore is how many events were lost before the range begins, and began the number of the
	// last one before the first known one.
	LostBefore, began uint64
	// fromSeen and toSeen count the marks that have the names of the range.
	fromSeen, toSeen int
	// Earlier is true where the first mark lies before the beginning, and over where the
	// second one does, if what there was then is not known. Known is true where both lie
	// before the beginning, and are known.
	Earlier, Known, over bool
}

// New follows an empty state.
func New(r Range) *Follower { return &Follower{Range: r, State: aggregate.New()} }

// Apply applies an event to the state.
func (m *Follower) Apply(e *event.Event) {
	if e.Kind == event.Checkpoint { // it has the marks of before
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
			m.LostBefore = 0 // the range begins before
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

// mark takes a mark; earlier is true for those of before the beginning, at which not all is
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

// passesOver reports whether a mark is of a step, and the range does not name such marks.
func (m *Follower) passesOver(name string) bool {
	return memory.IsStepMark(name) && !memory.IsStepMark(m.From.Name) && !memory.IsStepMark(m.To.Name)
}

// Unused is how many marks of steps or, of others, of before the beginning were passed over.
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

// Marks are those of the range; nil if marks decide nothing and none are shown.
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

// firstNs is when one of the processes with survivors allocated for the first time.
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

// An EarlierMarkError says that the second mark lies before the first known event.
type EarlierMarkError struct{ Mark string }

func (e *EarlierMarkError) Error() string {
	return fmt.Sprintf("the mark %q lies before the beginning: what was there then is not known", e.Mark)
}

// Check is an error if a mark of the range was not seen.
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

// missing is an error that names the marks that were seen.
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
