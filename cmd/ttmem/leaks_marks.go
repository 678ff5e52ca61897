package main

import (
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page/leaks"
	"ttmem/tracer/event"
)

// leakRange is the two moments between which leaks are searched. The zero value is the whole
// run.
type leakRange struct {
	// from and to are names of marks, and fromNth and toNth which of these, from 1: 0 is
	// the first from and the last to. "" is the beginning, and the end.
	from, to       string
	fromNth, toNth int
	// all is from the first mark to the last, whatever they are called.
	all bool
	// intervalNs places marks so many ns from each other; 0: none.
	intervalNs uint64
}

// whole reports whether no marks are given.
func (r *leakRange) whole() bool {
	return r.from == "" && r.to == "" && !r.all
}

const (
	// maxLeakMarks is how many marks are shown: of more every second one is left out.
	maxLeakMarks = 1024
	// maxMarkNames is how many names an error about an unknown mark lists.
	maxMarkNames = 16
)

// leakMarks has the state follow what survives between two marks.
type leakMarks struct {
	leakRange
	state *aggregate.State
	// marks are those from the first that counts on; toMarks is how many there were up to the
	// second one, 0 if that has not come.
	marks     []leaks.Mark
	toMarks   int
	following bool
	// firstNs and nowNs are the times of the first allocation and of the latest event.
	firstNs, nowNs uint64

	names            []string
	fromSeen, toSeen int
	// stepMarks and earlierMarks are how many marks of steps, and of before the beginning,
	// were passed over.
	stepMarks, earlierMarks int
	// earlier is true where the first mark lies before the beginning, and over where the
	// second one does.
	earlier, over bool
}

// apply applies an event to the state.
func (m *leakMarks) apply(e *event.Event) {
	if e.Kind == event.Checkpoint {
		m.restore(e)
		return
	}
	m.nowNs = max(m.nowNs, e.TimeNs)
	m.followAll()
	switch {
	case e.Kind == event.Mark:
		m.mark(e.Cause, e.TimeNs, false)
	case e.Kind == event.Alloc && m.firstNs == 0 && !e.BeforeAttach:
		m.firstNs = e.TimeNs
	}
	m.state.Apply(e)
}

// restore begins with a checkpoint, and the marks that it has.
func (m *leakMarks) restore(e *event.Event) {
	m.state.Apply(e)
	*m = leakMarks{leakRange: m.leakRange, state: m.state, nowNs: e.TimeNs}
	m.followAll()
	for _, mark := range m.state.Marks() {
		m.mark(mark.Name, mark.TimeNs, true)
	}
	if !m.following {
		return
	}
	for _, h := range m.state.Buffers() {
		if !h.BeforeAttach && (m.firstNs == 0 || h.SinceNs < m.firstNs) {
			m.firstNs = h.SinceNs
		}
	}
}

// followAll follows from the beginning if the range begins there.
func (m *leakMarks) followAll() {
	if !m.following && (m.from == "" && m.to != "" || m.intervalNs > 0) {
		m.follow("", 0)
	}
}

func (m *leakMarks) follow(name string, timeNs uint64) {
	m.following, m.marks = true, []leaks.Mark{{Name: name, TimeNs: timeNs}}
	m.state.FollowFrom(timeNs)
}

// mark notes a mark; earlier is true for those of before the beginning.
func (m *leakMarks) mark(name string, timeNs uint64, earlier bool) {
	if len(m.names) < maxMarkNames && !slices.Contains(m.names, name) {
		m.names = append(m.names, name)
	}
	isFrom, isTo := m.from != "" && name == m.from, m.to != "" && name == m.to
	if isFrom {
		m.fromSeen++
		isFrom = !m.following && m.fromSeen >= m.fromNth
	}
	if isTo {
		m.toSeen++
		isTo = m.toNth == 0 || m.toSeen == m.toNth
	}
	step := aggregate.IsStepMark(name) && !aggregate.IsStepMark(m.from) && !aggregate.IsStepMark(m.to)
	switch {
	case step:
		if !earlier {
			m.stepMarks++
		}
	case isFrom, m.all && !m.following && !earlier:
		m.earlier = earlier
		m.follow(name, timeNs)
	case earlier && isTo && (m.following || m.from == ""):
		m.over = true
	case earlier:
		m.earlierMarks++
	case m.following && m.intervalNs == 0:
		m.marks = append(m.marks, leaks.Mark{Name: name, TimeNs: timeNs})
		if isTo || m.all {
			m.toMarks = len(m.marks)
			m.state.FollowTo(timeNs)
		}
		if len(m.marks) > maxLeakMarks {
			m.thin()
		}
	}
}

// thin leaves out every second mark.
func (m *leakMarks) thin() {
	kept, to := m.marks[:0], 0
	for i, one := range m.marks {
		if i%2 == 0 || i == m.toMarks-1 {
			kept = append(kept, one)
		}
		if i == m.toMarks-1 {
			to = len(kept)
		}
	}
	m.marks, m.toMarks = kept, to
}

// between are the marks of the range; nil if marks decide nothing and none are shown.
func (m *leakMarks) between() []leaks.Mark {
	switch {
	case !m.following:
		return nil
	case m.intervalNs > 0:
		return m.everyInterval()
	}
	marks := m.marks
	if m.toMarks > 0 {
		marks = marks[:m.toMarks]
	} else {
		marks = append(slices.Clip(marks), leaks.Mark{TimeNs: m.nowNs})
	}
	if marks[0].Name == "" {
		marks[0].TimeNs = min(m.firstNs, marks[1].TimeNs) - 1 // before the first allocation
	}
	return marks
}

// everyInterval are the marks of a time, from the first allocation on.
func (m *leakMarks) everyInterval() (marks []leaks.Mark) {
	if m.firstNs == 0 {
		return nil
	}
	every := m.intervalNs
	for (m.nowNs-m.firstNs)/every > maxLeakMarks {
		every *= 2
	}
	for at := m.firstNs - 1; at < m.nowNs; at += every {
		marks = append(marks, leaks.Mark{TimeNs: at})
	}
	return append(marks, leaks.Mark{TimeNs: m.nowNs})
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
		return &earlierMarkError{markText(m.to, m.toNth)}
	case m.from != "" && !m.following:
		return m.missing(m.from, m.fromNth, m.fromSeen)
	case m.to == "" || m.toMarks > 0:
		return nil
	case m.toSeen > 0 && m.toSeen >= m.toNth:
		return fmt.Errorf("no mark %q after the mark %q", markText(m.to, m.toNth), markText(m.from, m.fromNth))
	}
	return m.missing(m.to, m.toNth, m.toSeen)
}

// missing is an error that names the marks that were seen.
func (m *leakMarks) missing(name string, nth, seen int) error {
	text := markText(name, nth)
	switch {
	case len(m.names) == 0:
		return fmt.Errorf("no mark %q: there are no marks; `ttmem mark NAME` sets one while a program runs", text)
	case seen > 0:
		return fmt.Errorf("no mark %q: there are %d of that name", text, seen)
	}
	return fmt.Errorf("no mark %q: there are %s", text, strings.Join(m.names, ", "))
}

// markText is how users write a mark: its name, with its number if it has one.
func markText(name string, nth int) string {
	if nth > 0 {
		return fmt.Sprintf("%s#%d", name, nth)
	}
	return name
}
