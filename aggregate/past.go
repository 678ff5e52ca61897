package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/newest"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// past is what a State knows of buffers that ended, so that Between can begin and end at marks
// from before. Few buffers are in it: those that were live at a mark, or that ended with their
// device or process after one.
//
// A mark matters only to processes of the user who set it, and root's to all: the marks of a
// user must not use up the space of others.
type past struct {
	list  []*pastBuffers // in order of their first end
	index map[life]*pastBuffers
	// missing is the newest mark at which buffers are missing, by user.
	missing map[int]uint64
}

// A life says at which marks some buffers of a call site were live: at those after the mark
// after, up to the mark last. Marks are times; 0 is the beginning.
type life struct {
	site        *callSite
	after, last uint64
	// ended is true if they ended with their device or process.
	ended bool
}

// pastBuffers counts the buffers of one life, with bytes on each chip. The first of them was
// allocated at sinceNs.
type pastBuffers struct {
	life
	memory.Amount
	sinceNs uint64
}

// isLiveAt reports whether the buffers were live at a mark.
func (l *life) isLiveAt(mark uint64) bool { return l.after < mark && mark <= l.last }

// maxPast is how many pastBuffers a State keeps.
const maxPast = 1 << 16

// isMarkFor reports whether the mark of one user matters to the processes of another.
func isMarkFor(marker, uid int) bool { return marker == 0 || marker == uid }

// marksFor returns the times of the marks that matter to the processes of a user.
func (s *State) marksFor(uid int) (times []uint64) {
	for _, m := range s.marks.List() {
		if isMarkFor(m.UID, uid) {
			times = append(times, m.TimeNs)
		}
	}
	return times
}

// addMark adds a mark of a user to the processes to which it matters.
func (s *State) addMark(e *event.Event) {
	for _, p := range s.processes {
		n := p.name
		if !isMarkFor(e.UID, n.about.UID) {
			continue
		}
		if len(n.marks) == 2*newest.Most {
			n.marks = slices.Delete(n.marks, 0, newest.Most)
		}
		n.marks = append(n.marks, e.TimeNs)
	}
}

// remember notes that a buffer ends. ended is true if its device or process ends.
func (s *State) remember(b *buffer, ended bool) {
	marks := b.set.process.marks
	if len(marks) == 0 || b.before {
		return
	}
	of := life{site: b.callSite, last: marks[len(marks)-1], ended: ended}
	if b.since > of.last && !ended {
		return // most buffers: no mark lies in between
	}
	if i, _ := slices.BinarySearch(marks, b.since); i > 0 {
		of.after = marks[i-1]
	}
	one := s.past.index[of]
	if one == nil {
		if len(s.past.list) == maxPast {
			s.past.trim()
		}
		one = &pastBuffers{life: of, sinceNs: b.since}
		s.past.add(one)
	}
	one.Add(memory.Amount{Count: 1, Bytes: b.allocated()})
	one.sinceNs = min(one.sinceNs, b.since)
}

// rememberAll notes that all buffers of an arena end; all buffers of the process if only is nil.
func (s *State) rememberAll(p *process, only *arena) {
	if len(p.name.marks) == 0 {
		return
	}
	for b := range p.buffers.All() {
		if only == nil || b.arena == only {
			s.remember(b, true)
		}
	}
	for _, one := range s.past.list {
		if only == nil && one.site.set.process == p.name {
			one.site.stack.Calls() // an unresolved stack keeps all data about the process's code
		}
	}
}

func (p *past) add(one *pastBuffers) {
	if p.index == nil {
		p.index = make(map[life]*pastBuffers)
	}
	p.index[one.life] = one
	p.list = append(p.list, one)
}

// trim keeps the newer half. No user's buffers displace those of a user who has fewer.
func (p *past) trim() {
	have := make(map[int]int)
	for _, one := range p.list {
		have[one.site.uid()]++
	}
	each := newest.FairShare(have, maxPast/2)
	slices.SortStableFunc(p.list, func(a, b *pastBuffers) int { return cmp.Compare(a.last, b.last) })
	if p.missing == nil {
		p.missing = make(map[int]uint64)
	}
	p.list = slices.DeleteFunc(p.list, func(one *pastBuffers) bool {
		uid := one.site.uid()
		if have[uid] <= each {
			return false
		}
		have[uid]--
		p.missing[uid] = max(p.missing[uid], one.last)
		delete(p.index, one.life)
		return true
	})
}

func (c *callSite) uid() int { return c.set.process.about.UID }

// only returns the past of the selected processes.
func (p *past) only(selected func(pid, uid int) bool) (some past) {
	for _, one := range p.list {
		if selected(one.site.set.process.pid, one.site.uid()) {
			some.list = append(some.list, one)
		}
	}
	some.missing = maps.Clone(p.missing)
	maps.DeleteFunc(some.missing, func(uid int, _ uint64) bool { return !selected(0, uid) })
	return some
}

// KnowsAt reports whether the buffers that were live at a mark are known, also those that ended
// since. Of a process they are known at the marks of its user and of root.
func (s *State) KnowsAt(m *memory.Mark) bool {
	for uid, missing := range s.past.missing {
		if isMarkFor(m.UID, uid) && m.TimeNs <= missing {
			return false
		}
	}
	for _, p := range s.processes {
		if !isMarkFor(m.UID, p.name.about.UID) {
			return false
		}
	}
	return !slices.ContainsFunc(s.exited, func(p memory.Process) bool {
		return p.Exit.TimeNs > m.TimeNs && !isMarkFor(m.UID, p.UID)
	})
}

// past writes or reads the past.
func (c *stateCodec) past(p *past) {
	list := p.list
	codec.List(c.Codec, &list, func(of **pastBuffers) {
		one := codec.Made(c.Codec, of)
		c.sites.One(c.Codec, &one.site, c.pastSite)
		c.Uints(&one.after, &one.last, &one.Count, &one.Bytes, &one.sinceNs)
		if c.Bool(&one.ended); c.Reads && !c.Bad {
			c.checkBanked(one.site.region)
			p.add(one)
		}
	})
	if c.Reads {
		p.missing = make(map[int]uint64)
	}
	codec.Table(c.Codec, p.missing, func(uid *int, at *uint64) { codec.Number(c.Codec, uid); c.Uint(at) })
}

// pastSite writes or reads a call site that the state has forgotten.
func (c *stateCodec) pastSite(p **callSite) {
	one := codec.Made(c.Codec, p)
	var of *processName
	var set *deviceSet
	if !c.Reads {
		of, set = one.set.process, one.set
	}
	c.names.One(c.Codec, &of, c.name)
	c.set(&set, of)
	c.Region(&one.region, event.NumRegions)
	codec.Number(c.Codec, &one.layout)
	codec.Number(c.Codec, &one.static)
	c.Bool(&one.before)
	c.Bool(&one.perCore)
	c.Stack(&one.stack)
	one.stackID = memory.StackID(one.stack)
	c.arena(&one.arena, set)
	c.Value(&one.allocated)
	if c.Reads && set.process != of {
		c.Fail()
	}
}
