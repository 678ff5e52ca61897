package main

import (
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/leaks"
	"ttmem/tracer/event"
)

// A markName names a mark: the nth of that name or, if nth is 0, the first one where leaks are
// searched from and the last one where they are searched to.
type markName struct {
	name string // "": the beginning, or the end
	nth  int
}

// String is the mark as users name it.
func (m markName) String() string {
	if m.nth > 0 {
		return fmt.Sprintf("%s#%d", m.name, m.nth)
	}
	return m.name
}

// leakRange is the two moments between which leaks are searched. The zero value is the whole
// run.
type leakRange struct {
	from, to markName
	// all is from the first mark to the last, whatever they are called.
	all bool
	// intervalNs places marks so many ns from each other; 0: none.
	intervalNs uint64
}

// whole reports whether no marks are given.
func (r *leakRange) whole() bool {
	return r.from.name == "" && r.to.name == "" && !r.all
}

// maxLeakMarks is how many marks are shown: of more every second one is left out.
const maxLeakMarks = 1024

// leakMarks has the state follow what survives between two marks.
type leakMarks struct {
	leakRange
	state *aggregate.State
	// marks are those from the first one of the range on, and end is the second one; nil
	// where these have not come.
	marks []leaks.Mark
	end   *leaks.Mark
	// began is the number of the last event before the first known one, and lostBefore how
	// many were lost by then.
	began, lostBefore uint64
	// fromSeen and toSeen count the marks that have the names of the range.
	fromSeen, toSeen int
	// earlier is true where the first mark lies before the beginning, and over where the
	// second one does, if what there was then is not known. known is true where both lie
	// before the beginning, and are known.
	earlier, over, known bool
}

// apply applies an event to the state.
func (m *leakMarks) apply(e *event.Event) {
	if e.Kind == event.Checkpoint { // it has the marks of before
		m.state.Apply(e)
		*m = leakMarks{leakRange: m.leakRange, state: m.state, began: m.state.Number(), lostBefore: m.state.Snapshot().LostEvents}
	}
	if m.marks == nil && (m.from.name == "" && m.to.name != "" || m.intervalNs > 0) {
		m.follow(leaks.Mark{})
	}
	switch e.Kind {
	case event.Checkpoint:
		for _, one := range m.state.Marks() {
			m.mark(leaks.Mark{Name: one.Name, TimeNs: one.TimeNs}, !m.state.KnowsAt(&one))
		}
		m.known = m.end != nil
		if m.marks != nil && m.intervalNs == 0 {
			m.lostBefore = 0 // the range begins before
		}
		return
	case event.Mark:
		m.mark(leaks.Mark{Name: e.Cause, TimeNs: e.TimeNs}, false)
	}
	m.state.Apply(e)
}

// follow begins the range with a mark; the zero value is the beginning.
func (m *leakMarks) follow(first leaks.Mark) {
	m.marks = []leaks.Mark{first}
	m.state.FollowFrom(first.TimeNs)
}

// mark takes a mark; earlier is true for those of before the beginning, at which not all is
// known.
func (m *leakMarks) mark(one leaks.Mark, earlier bool) {
	isFrom, isTo := m.from.name != "" && one.Name == m.from.name, m.to.name != "" && one.Name == m.to.name
	if isFrom {
		m.fromSeen++
		isFrom = m.marks == nil && m.fromSeen >= m.from.nth
	}
	if isTo {
		m.toSeen++
		isTo = m.to.nth == 0 || m.toSeen == m.to.nth
	}
	switch {
	case m.passesOver(one.Name):
	case isFrom, m.all && m.marks == nil && !earlier:
		m.earlier = earlier
		m.follow(one)
	case earlier:
		m.over = m.over || isTo && (m.marks != nil || m.from.name == "")
	case m.marks != nil && m.intervalNs == 0:
		m.marks = append(m.marks, one)
		if isTo || m.all {
			m.end = &one
			m.state.FollowTo(one.TimeNs)
		}
		if len(m.marks) > maxLeakMarks {
			m.marks = everySecond(m.marks)
		}
	}
}

// passesOver reports whether a mark is of a step, and the range does not name such marks.
func (m *leakMarks) passesOver(name string) bool {
	return memory.IsStepMark(name) && !memory.IsStepMark(m.from.name) && !memory.IsStepMark(m.to.name)
}

// unused is how many marks of steps or, of others, of before the beginning were passed over.
func (m *leakMarks) unused(ofSteps bool) (n int) {
	for _, one := range m.state.Marks() {
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

// between are the marks of the range; nil if marks decide nothing and none are shown.
func (m *leakMarks) between() []leaks.Mark {
	if m.marks == nil || m.state.BuffersAllocated() == 0 && m.intervalNs > 0 {
		return nil
	}
	if m.intervalNs > 0 {
		return m.everyInterval()
	}
	end := leaks.Mark{TimeNs: m.state.Now()}
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
func (m *leakMarks) firstNs() uint64 {
	first := m.state.Now()
	survivors, _ := m.state.Survivors()
	for i := range survivors {
		first = min(first, survivors[i].WorkedFromNs)
	}
	return first
}

// everyInterval are the marks of a time, from the first allocation on.
func (m *leakMarks) everyInterval() (marks []leaks.Mark) {
	first, now, every := m.firstNs(), m.state.Now(), m.intervalNs
	for (now-first)/every > maxLeakMarks {
		every *= 2
	}
	for at := first - 1; at < now; at += every {
		marks = append(marks, leaks.Mark{TimeNs: at})
	}
	return append(marks, leaks.Mark{TimeNs: now})
}

// An earlierMarkError says that the second mark lies before the first known event.
type earlierMarkError struct{ mark string }

func (e *earlierMarkError) Error() string {
	return fmt.Sprintf("the mark %q lies before the beginning: what was there then is not known", e.mark)
}

// check is an error if a mark of the range was not seen.
func (m *leakMarks) check() error {
	switch {
	case m.over:
		return &earlierMarkError{m.to.String()}
	case m.from.name != "" && m.marks == nil:
		return m.missing(m.from, m.fromSeen)
	case m.to.name == "" || m.end != nil:
		return nil
	case m.toSeen > 0 && m.toSeen >= m.to.nth:
		return fmt.Errorf("no mark %q after the mark %q: --to has to be later than --from", m.to, m.from)
	}
	return m.missing(m.to, m.toSeen)
}

// missing is an error that names the marks that were seen.
func (m *leakMarks) missing(mark markName, seen int) error {
	var names []string
	for _, one := range m.state.Index().Marks {
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
