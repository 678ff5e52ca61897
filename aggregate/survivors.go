package aggregate

import (
	"cmp"
	"iter"
	"slices"

	"ttmem/aggregate/births"
	"ttmem/aggregate/ended"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/past"
	"ttmem/tracer/event"
)

// The survivors of a call site are its buffers that were live at the latest allocation of
// their process. They include buffers that were freed afterwards, by a teardown of the program
// or with their device or process. Their births, the times of their allocations, show whether
// the site leaks.

// current reports whether a site lost buffers since the latest allocation of its process.
func (c *callSite) current() bool { return c.run.Current(&c.set.process.run) }

// named returns survivors with only the fields that identify the site.
func (c *callSite) named() memory.Survivors {
	process := c.set.process
	return memory.Survivors{
		Site: c.Site, Comm: process.comm, About: process.about,
		Allocated: c.allocated.Count, WorkedFromNs: process.run.FromNs, WorkedToNs: process.run.ToNs,
	}
}

// surviving returns the sum of a site's survivors. If its allocator is being closed, these
// include the buffers that ended since the latest allocation of the process; freedAtTeardown
// counts those of them that were freed.
func (c *callSite) surviving(closed bool) (total, freedAtTeardown memory.Amount) {
	total = memory.Amount{Count: c.live.Count, Bytes: c.live.Bytes * c.Chips()}
	if closed {
		var ended memory.Amount
		ended, freedAtTeardown = c.run.Ended(&c.set.process.run)
		total.Add(ended)
	}
	return total, freedAtTeardown
}

// survivors returns the present survivors of a site; closed is true if its allocator is being
// closed.
func (c *callSite) survivors(now uint64, closed bool) *ended.Site[*processName] {
	v := &ended.Site[*processName]{Survivors: c.named(), Process: c.set.process}
	v.Amount, v.FreedAtTeardown = c.surviving(closed)
	if v.Count+v.FreedAtTeardown.Count > 0 {
		v.AgeNs = now - min(now, c.since)
	}
	v.Run, v.Fresh = c.run.Run(&c.set.process.run, closed), c.fresh
	return v
}

// saveSurvivors saves the survivors of the call sites on a set of chips: those of an arena that
// is closed, or all if only is nil. It must be called before their buffers are removed. Of many
// call sites it saves those with the most survivors, and adds up the others. It resolves the
// stacks that it saves: an unresolved stack keeps all data about the process's code in memory.
func (s *State) saveSurvivors(set *deviceSet, only *arena) {
	// The sites come with the values that they are sorted by, so that sorting 100,000 of them does
	// not read them.
	type rankedSite struct {
		*callSite
		memory.Amount
		stackID uint64
	}
	list := make([]rankedSite, 0, len(set.sites))
	for c := range set.callSites(only) {
		if c.run.Open || c.BeforeAttach && c.live.Count > 0 {
			total, teardown := c.surviving(true)
			total.Add(teardown)
			list = append(list, rankedSite{c, total, memory.StackID(c.Stack)})
		}
	}
	// Sites of equal rank are ordered too; a mesh has one for each chip.
	slices.SortFunc(list, func(a, b rankedSite) int {
		if c := cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.stackID, b.stackID)); c != 0 {
			return c
		}
		return cmp.Or(a.Compare(&b.Site), cmp.Compare(a.allocator, b.allocator))
	})
	replaceable := s.replaceable(set)
	for i, one := range list {
		switch c := one.callSite; {
		case one.Count == 0:
		case i >= ended.Most:
			total, _ := c.surviving(true)
			s.ended.Others.Add(total)
		default:
			v := c.survivors(s.now, true)
			v.Run.Replaceable = replaceable[c.Region]
			c.Stack.Calls()
			s.ended.All = append(s.ended.All, v)
		}
		one.run = births.Site{}
	}
	s.ended.Trim((*processName).sharer)
}

// EndedSurvivors returns the buffers that ended with their device or process, by call site, with
// the bytes on each chip. It has only the call sites with the most; others is the sum of the
// rest.
func (s *State) EndedSurvivors() (list []memory.SiteAmount, others memory.Amount) {
	return s.ended.Amounts(), s.ended.Others
}

// Survivors returns the survivors by call site, in no order. For processes that ended or closed
// their device it has only the call sites with the most survivors; others is the sum of the
// rest. The cost depends on the number of call sites.
func (s *State) Survivors() (list []memory.Survivors, others memory.Amount) {
	var all []*ended.Site[*processName]
	for _, v := range s.ended.All {
		if !v.BeforeAttach { // whose births are not known
			all = append(all, v)
		}
	}
	replaceable := make(map[*deviceSet]map[event.Region]uint64)
	for _, first := range s.sites {
		for c := range first.all() {
			if !c.run.Open || c.live.Count == 0 {
				continue
			}
			v := c.survivors(s.now, false)
			if replaceable[c.set] == nil {
				replaceable[c.set] = s.replaceable(c.set)
			}
			v.Run.Replaceable = replaceable[c.set][c.Region]
			all = append(all, v)
		}
	}
	return ended.Merge(all), s.ended.Others
}

// replaceable returns how many buffers from before the attach were freed on these chips, by
// region.
func (s *State) replaceable(set *deviceSet) map[event.Region]uint64 {
	freed := make(map[event.Region]uint64)
	for c := range set.callSites(nil) {
		if c.BeforeAttach {
			freed[c.Region] += c.allocated.Count - c.live.Count - c.ended.Count
		}
	}
	return freed
}

// BuffersAllocated returns how many buffers were allocated in all, without those from before
// the attach.
func (s *State) BuffersAllocated() uint64 { return s.allocations }

// FollowFrom sets the first of the two moments of Between, in ns: now, or an earlier mark for
// which KnowsAt is true. For other moments the buffers that were freed since are not known.
func (s *State) FollowFrom(ns uint64) { s.between = s.past.From(ns, s.now, s.followed()) }

// FollowTo sets the second moment, in ns: now or, right after FollowFrom, an earlier mark. A
// later call moves it.
func (s *State) FollowTo(ns uint64) { s.between.To(ns) }

// Between returns the buffers that survived from the first moment to the second, by call site,
// with births in the intervals between times. These begin with the first moment. others are
// survivors whose call sites were too many to keep, and over the buffers that ended with their
// device or process before the second moment. The cost depends on the number of live buffers.
func (s *State) Between(times []uint64) (list []memory.SurvivorsBetween, others, over memory.Amount) {
	return s.between.Survivors(times, s.now, s.followed(), (*callSite).named)
}

// followed returns the live buffers, without those from before the attach.
func (s *State) followed() iter.Seq[past.Buffers[*callSite]] {
	return func(yield func(past.Buffers[*callSite]) bool) {
		for _, p := range s.byPID() {
			for b := range p.buffers.All() {
				if !b.BeforeAttach && !yield(b.followed()) {
					return
				}
			}
		}
	}
}

func (b *buffer) followed() past.Buffers[*callSite] {
	return past.Buffers[*callSite]{Site: b.callSite, Amount: b.tally().Amount, SinceNs: b.SinceNs}
}

// noteEnd notes that a buffer ends; ended is true if its device or process ends.
func (s *State) noteEnd(b *buffer, now uint64, ended bool) {
	if b.BeforeAttach {
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
			site.Stack.Calls() // an unresolved stack keeps all data about the process's code
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

// KnowsAt reports whether the buffers that were live at a mark are known, including those that
// ended since. For each process this holds for the marks of its user and of root.
func (s *State) KnowsAt(m *memory.Mark) bool {
	for _, p := range s.processes {
		if !past.Matters(m.UID, p.name.about.UID) {
			return false
		}
	}
	return s.past.Knows(m.UID, m.TimeNs) && !slices.ContainsFunc(s.exited, func(p exitedProcess) bool {
		return p.Exit.TimeNs > m.TimeNs && !past.Matters(m.UID, p.UID)
	})
}
