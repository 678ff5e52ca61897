// Package between follows the survivors between two moments.
package between

import (
	"fmt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/leaks"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/tracer/event"
)

// A Follower makes a state follow the survivors of a span, of which Begin and End take the moments. While
// processes run, Apply only finds them: they are marks.
type Follower struct {
	moment.Span
	State *aggregate.State
	// from and to are the moments of the span; nil if they have not come yet.
	from, to *memory.Mark
	// LostBefore is the number of events lost before the span begins, and known the number of the
	// last event before the first known one.
	LostBefore, known uint64
	// Of is the span in ns, and Calls are its calls; nil without a function.
	Of    page.Span
	Calls memory.Intervals
}

// Take takes the intervals of the span in a recording.
func (m *Follower) Take(list moment.Intervals) {
	m.Of = source.SpanOf(&m.Span, list)
	if m.Within != "" {
		m.Calls = list.Times()
	}
}

// Begin begins the span. The state is at its first moment.
func (m *Follower) Begin(s *aggregate.State, at memory.Point) {
	m.State, m.from, m.LostBefore = s, &memory.Mark{}, 0
	if m.From.Kind != moment.Begin || m.Calls != nil {
		m.from = markAt(s, &m.From, at)
		m.LostBefore = s.Totals().LostEvents
	}
	s.FollowFrom(m.from.TimeNs)
}

// End ends the span. The state is at its last moment.
func (m *Follower) End(s *aggregate.State, at memory.Point) {
	m.to = markAt(s, &m.To, at)
	s.FollowTo(m.to.TimeNs)
}

// markAt returns a moment, at which the state is, as a mark.
func markAt(s *aggregate.State, of *moment.Moment, at memory.Point) *memory.Mark {
	one := &memory.Mark{Name: of.Name, TimeNs: at.TimeNs, Number: s.Number()}
	if of.Kind != moment.Mark {
		one.Name = of.Text
	}
	return one
}

// Apply applies an event to the state, and finds the marks of the span.
func (m *Follower) Apply(e *event.Event) {
	m.State.Apply(e)
	joins := e.Kind == event.Checkpoint
	if joins { // it has the earlier marks
		*m = Follower{Span: m.Span, State: m.State, known: m.State.Number(), LostBefore: m.State.Totals().LostEvents}
	}
	if m.IsWhole() || !joins && e.Kind != event.Mark {
		return
	}
	x := m.State.Index()
	if at, ok := m.From.Find(&x); ok && m.from == nil {
		m.from = &memory.Mark{Number: at.Number}
	}
	if at, ok := m.To.Find(&x); ok && m.from != nil && at.Number > m.from.Number {
		m.to = &memory.Mark{Number: at.Number}
	}
}

// Found reports whether both moments of the span are known. The end is never known before it comes.
func (m *Follower) Found() bool { return m.from != nil && m.to != nil }

// IsReversed reports whether both marks are known, and the span ends before it begins. With the
// same mark twice and no number, it may end at the next one of that name.
func (m *Follower) IsReversed() bool {
	x := m.State.Index()
	to, ok := m.To.Find(&x)
	switch {
	case m.from == nil || m.to != nil || m.To.Kind != moment.Mark || !ok:
		return false
	case to.Number == m.from.Number:
		return m.To.Nth > 0
	}
	return to.Number < m.from.Number
}

// Awaits says which mark of the span has not been set yet, and which marks exist; "" if none is
// missing.
func (m *Follower) Awaits() string {
	awaited := &m.From
	switch {
	case m.from == nil && m.From.Kind != moment.Mark:
		return ""
	case m.from == nil:
	case m.to == nil && m.To.Kind == moment.Mark:
		awaited = &m.To
	default:
		return ""
	}
	x := m.State.Index()
	said := fmt.Sprintf("waiting for the mark %s: %s", page.Clean(awaited.MarkName()), awaited.OtherMarks(&x))
	if len(x.Marks) == 0 {
		said += source.MarkHint
	}
	return said
}

// passesOver reports whether a mark belongs to a step, unless the span names such marks.
func (m *Follower) passesOver(name string) bool {
	return memory.IsStepMark(name) && !memory.IsStepMark(m.From.Name) && !memory.IsStepMark(m.To.Name)
}

// MarksBefore returns how many marks are from before the beginning.
func (m *Follower) MarksBefore() (n int) {
	for _, one := range m.State.Marks() {
		if one.Number <= m.known && !m.passesOver(one.Name) {
			n++
		}
	}
	return n
}

// StepMarks returns how many marks of steps are in the span and are not used.
func (m *Follower) StepMarks() (n int) {
	if m.Calls != nil {
		return 0
	}
	for _, one := range m.State.Marks() {
		if m.has(&one) && m.passesOver(one.Name) {
			n++
		}
	}
	return n
}

// has reports whether a mark is between the two moments.
func (m *Follower) has(one *memory.Mark) bool {
	after := m.known
	if m.from != nil {
		after = m.from.Number
	}
	return one.Number > after && (m.to == nil || one.Number != m.to.Number && one.TimeNs <= m.to.TimeNs)
}

// Marks returns the marks of the span; nil for the whole run.
func (m *Follower) Marks() []leaks.Mark {
	if m.from == nil {
		return nil
	}
	if m.Calls != nil {
		return m.calls()
	}
	marks := []leaks.Mark{{Name: m.from.Name, TimeNs: m.from.TimeNs}}
	for _, one := range m.State.Index().Marks {
		if m.has(&one) && !m.passesOver(one.Name) {
			marks = append(marks, leaks.Mark{Name: one.Name, TimeNs: one.TimeNs})
		}
	}
	end := leaks.Mark{TimeNs: m.State.Now()}
	if m.to != nil {
		end = leaks.Mark{Name: m.to.Name, TimeNs: m.to.TimeNs}
	}
	marks = append(marks, end)
	if marks[0].Name == "" {
		marks[0].TimeNs = min(m.firstNs(), marks[1].TimeNs) - 1 // before the first allocation
	}
	return marks
}

// calls returns the beginnings of the calls, and the end of the last, as marks.
func (m *Follower) calls() (marks []leaks.Mark) {
	for _, one := range m.Calls {
		marks = append(marks, leaks.Mark{Name: m.Call(), TimeNs: one.FromNs - 1}) // before the first event
	}
	return append(marks, leaks.Mark{Name: m.Call(), TimeNs: m.Calls[len(m.Calls)-1].ToNs})
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

// Check returns an error if a mark of the span was not seen. place is that of the events.
func (m *Follower) Check(place string) error {
	x := m.State.Index()
	_, ends := m.To.Find(&x)
	switch {
	case m.IsWhole(), m.from != nil && (m.to != nil || m.To.AtEnd()):
		return nil
	case m.from == nil && m.From.Kind == moment.Mark:
		return source.Flagged(m.From.Missing(&x, place), place)
	case ends:
		return source.Flagged(m.Empty(), place)
	}
	return source.Flagged(m.To.Missing(&x, place), place)
}
