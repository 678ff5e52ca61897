package aggregate

import (
	"iter"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/past"
	"ttmem/tracer/event"
)

// FollowFrom sets the first of the two moments of Between, in ns: now or a mark from before that
// KnowsAt knows. Of other moments the buffers that were freed since are not known.
func (s *State) FollowFrom(ns uint64) { s.between = s.past.From(ns, s.now, s.followed()) }

// FollowTo sets the second moment, in ns: now or, right after FollowFrom, a mark from before. A
// later call moves it.
func (s *State) FollowTo(ns uint64) { s.between.To(ns) }

// Between returns the buffers that survived from the first moment to the second, by call site,
// with births in the intervals between times. These begin with the first moment. over counts
// the buffers that ended with their device or process before the second moment. The cost
// depends on the number of live buffers.
func (s *State) Between(times []uint64) (list []memory.SurvivorsBetween, over memory.Amount) {
	return s.between.Survivors(times, s.now, s.followed(), (*callSite).named)
}

// followed returns the live buffers, without those from before the attach.
func (s *State) followed() iter.Seq[past.Buffers[*callSite]] {
	return func(yield func(past.Buffers[*callSite]) bool) {
		for _, p := range s.byPID() {
			for b := range p.buffers.All() {
				if !b.before && !yield(b.followed()) {
					return
				}
			}
		}
	}
}

func (b *buffer) followed() past.Buffers[*callSite] {
	return past.Buffers[*callSite]{Site: b.callSite, Amount: b.tally().Amount, SinceNs: b.since}
}

// noteEnd notes that a buffer ends; ended is true if its device or process ends.
func (s *State) noteEnd(b *buffer, now uint64, ended bool) {
	if b.before {
		return
	}
	if s.between != nil {
		s.between.End(b.followed(), now, ended, &b.set.process.freedLast)
	}
	s.past.Add(b.followed(), b.set.process.marks, ended)
}

// noteEnds notes that all buffers of an arena end; all buffers of the process if only is nil.
func (s *State) noteEnds(p *process, only *arena, now uint64) {
	if s.between != nil {
		s.between.Teardown(&p.name.freedLast)
	} else if len(p.name.marks) == 0 {
		return
	}
	for b := range p.buffers.All() {
		if only == nil || b.arena == only {
			s.noteEnd(b, now, true)
		}
	}
	for site := range s.past.Sites() {
		if only == nil && site.set.process == p.name {
			site.stack.Calls() // an unresolved stack keeps all data about the process's code
		}
	}
}

// marksFor returns the marks that matter to the processes of a user.
func (s *State) marksFor(uid int) (marks past.Marks) {
	for _, m := range s.marks.List() {
		if past.Matters(m.UID, uid) {
			marks = append(marks, m.TimeNs)
		}
	}
	return marks
}

// addMark adds a mark of a user to the processes to which it matters.
func (s *State) addMark(e *event.Event) {
	for _, p := range s.processes {
		if past.Matters(e.UID, p.name.about.UID) {
			p.name.marks.Add(e.TimeNs)
		}
	}
}

// KnowsAt reports whether the buffers that were live at a mark are known, also those that ended
// since. Of a process they are known at the marks of its user and of root.
func (s *State) KnowsAt(m *memory.Mark) bool {
	for _, p := range s.processes {
		if !past.Matters(m.UID, p.name.about.UID) {
			return false
		}
	}
	return s.past.Knows(m.UID, m.TimeNs) && !slices.ContainsFunc(s.exited, func(p memory.Process) bool {
		return p.Exit.TimeNs > m.TimeNs && !past.Matters(m.UID, p.UID)
	})
}
