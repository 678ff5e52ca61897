package aggregate

import (
	"cmp"
	"iter"
	"slices"

	"ttmem/aggregate/internal/births"
	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/internal/past"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// survivors observe the births and ends of buffers. The survivors of a call site are its buffers that were
// live at the latest allocation of their process. They include buffers that were freed afterwards, by a
// teardown of the program or with their device or process. Their births, the times of their allocations,
// show whether the site leaks.
type survivors struct {
	// allocations is how many buffers were allocated, without those from before the attach.
	allocations uint64
	// ended are the survivors of call sites whose allocators were closed: those with the most, at least
	// mostEnded and up to twice as many, and as many of each user. others is the sum of the rest.
	ended  []*endedSite
	others memory.Amount
}

const mostEnded = 4096

// An endedSite has the survivors of a call site.
type endedSite struct {
	memory.Survivors
	process *processName
}

func (v *survivors) born(b *buffer) {
	if !b.BeforeAttach {
		v.allocations++
		b.set.process.run.Alloc(&b.run, b.BufferID, b.SinceNs)
	}
}

// died takes the end of a buffer; ended is true if its device or process ends.
func (v *survivors) died(b *buffer, ended bool) {
	if !b.BeforeAttach {
		b.set.process.run.Free(&b.run, b.BufferID, b.bytes(), ended)
	}
}

// closed saves the survivors of the call sites on a set of chips: those of an arena that is closed, or all
// if only is nil, before their buffers are removed. Of many call sites it saves those with the most
// survivors, and adds up the others. It resolves the stacks that it saves: an unresolved stack keeps all
// data about the process's code in memory.
func (v *survivors) closed(set *deviceSet, only *arena, now uint64) {
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
	replaceable := set.replaceable()
	for i, one := range list {
		switch c := one.callSite; {
		case one.Count == 0:
		case i >= mostEnded:
			total, _ := c.surviving(true)
			v.others.Add(total)
		default:
			c.Stack.Calls()
			v.ended = append(v.ended, c.survivors(now, true, replaceable))
		}
		one.run = births.Site{}
	}
	v.trim()
}

// trim, once the list has twice the limit, keeps the call sites with the most survivors, as many of each
// user, and adds up the others.
func (v *survivors) trim() {
	if len(v.ended) < 2*mostEnded {
		return
	}
	slices.SortStableFunc(v.ended, func(a, b *endedSite) int {
		return cmp.Or(cmp.Compare(b.Run.Total(), a.Run.Total()), cmp.Compare(b.Bytes, a.Bytes))
	})
	has := make(map[int]int)
	for _, one := range v.ended {
		has[one.process.sharer()]++
	}
	each := newest.FairShare(has, mostEnded)
	clear(has)
	v.ended = slices.DeleteFunc(v.ended, func(one *endedSite) bool {
		user := one.process.sharer()
		if has[user]++; has[user] <= each {
			return false
		}
		v.others.Add(one.Amount)
		return true
	})
}

// code writes or reads the survivors.
func (v *survivors) code(c *stateCodec) {
	codec.ListUpTo(c.Codec, &v.ended, 2*mostEnded, func(p **endedSite) {
		one := codec.Made(c.Codec, p)
		c.names.One(c.Codec, &one.process, c.name)
		c.Value(&one.Survivors)
		c.checkBanked(one.Region)
		if one.PID != one.process.pid {
			c.Fail()
		}
	})
	c.Value(&v.others)
	c.Uint(&v.allocations)
}

// current reports whether a site lost buffers since the latest allocation of its process.
func (c *callSite) current() bool { return c.run.Current(&c.set.process.run) }

// Named returns survivors with only the fields that identify the site.
func (c *callSite) Named() memory.Survivors {
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
func (c *callSite) survivors(now uint64, closed bool, replaceable map[event.Region]uint64) *endedSite {
	v := &endedSite{Survivors: c.Named(), process: c.set.process}
	v.Amount, v.FreedAtTeardown = c.surviving(closed)
	if v.Count+v.FreedAtTeardown.Count > 0 {
		v.AgeNs = now - min(now, c.since)
	}
	v.Run, v.Fresh = c.run.Run(&c.set.process.run, closed), c.fresh
	v.Run.Replaceable = replaceable[c.Region]
	return v
}

// replaceable returns how many buffers from before the attach were freed on these chips, by
// region.
func (d *deviceSet) replaceable() map[event.Region]uint64 {
	freed := make(map[event.Region]uint64)
	for c := range d.callSites(nil) {
		if c.BeforeAttach {
			freed[c.Region] += c.allocated.Count - c.live.Count - c.ended.Count
		}
	}
	return freed
}

// EndedSurvivors returns the buffers that ended with their device or process, by call site, with
// the bytes on each chip. It has only the call sites with the most; others is the sum of the
// rest.
func (s *State) EndedSurvivors() (list []memory.SiteAmount, others memory.Amount) {
	for _, v := range s.survivors.ended {
		bytes := v.Bytes / uint64(max(1, len(v.Devices)))
		list = append(list, memory.SiteAmount{Site: v.Site, Amount: memory.Amount{Count: v.Count, Bytes: bytes}})
	}
	return list, s.survivors.others
}

// Survivors returns the survivors by call site, in no order, over all allocators. For processes that ended
// or closed their device it has only the call sites with the most survivors; others is the sum of the
// rest. The cost depends on the number of call sites.
func (s *State) Survivors() (list []memory.Survivors, others memory.Amount) {
	type site struct {
		process *processName
		memory.SiteKey
	}
	index := make(map[site]int)
	add := func(v *endedSite) {
		key := site{v.process, v.Key()}
		i, ok := index[key]
		if !ok {
			index[key] = len(list)
			list = append(list, v.Survivors)
			return
		}
		one := &list[i]
		one.Amount.Add(v.Amount)
		one.FreedAtTeardown.Add(v.FreedAtTeardown)
		one.Fresh.Add(v.Fresh)
		one.AgeNs, one.Allocated = max(one.AgeNs, v.AgeNs), max(one.Allocated, v.Allocated)
		if v.Run.Total() > one.Run.Total() {
			one.Run, one.WorkedToNs = v.Run, v.WorkedToNs
		}
	}
	for _, v := range s.survivors.ended {
		if !v.BeforeAttach { // whose births are not known
			add(v)
		}
	}
	replaceable := make(map[*deviceSet]map[event.Region]uint64)
	for _, first := range s.sites {
		for c := range first.all() {
			if !c.run.Open || c.live.Count == 0 {
				continue
			}
			if replaceable[c.set] == nil {
				replaceable[c.set] = c.set.replaceable()
			}
			add(c.survivors(s.now, false, replaceable[c.set]))
		}
	}
	return list, s.survivors.others
}

// BuffersAllocated returns how many buffers were allocated in all, without those from before
// the attach.
func (s *State) BuffersAllocated() uint64 { return s.survivors.allocations }

// FollowFrom sets the first of the two moments of Between, in ns: now. For an earlier one the buffers
// that were freed since are not known.
func (s *State) FollowFrom(ns uint64) { s.between = past.From(ns, s.followed()) }

// FollowTo sets the second moment, in ns: now. A later call moves it.
func (s *State) FollowTo(ns uint64) { s.between.To(ns) }

// Between returns the buffers that survived from the first moment to the second, by call site,
// with births in the intervals between times. These begin with the first moment. Only those count that were
// allocated in born. over are the buffers
// that ended with their device or process before the second moment. The cost depends on the number of
// live buffers.
func (s *State) Between(times []uint64, born memory.Intervals) (list []memory.SurvivorsBetween, over memory.Amount) {
	return s.between.Survivors(times, born, s.now, s.followed())
}

// followed returns the live buffers, without those from before the attach.
func (s *State) followed() iter.Seq[past.Buffers] {
	return func(yield func(past.Buffers) bool) {
		for _, p := range s.byPID() {
			for b := range p.buffers.All() {
				if !b.BeforeAttach && !yield(b.followed()) {
					return
				}
			}
		}
	}
}

func (b *buffer) followed() past.Buffers {
	return past.Buffers{Site: b.callSite, Amount: b.tally().Amount, SinceNs: b.SinceNs}
}

// noteEnd notes that a buffer ends; ended is true if its device or process ends.
func (s *State) noteEnd(b *buffer, now uint64, ended bool) {
	if s.between != nil && !b.BeforeAttach {
		s.between.End(b.followed(), now, ended, &b.set.process.freedLast)
	}
}

// noteEnds notes that all buffers of an arena end; all buffers of the process if only is nil.
func (s *State) noteEnds(p *process, only *arena, now uint64) {
	if s.between == nil {
		return
	}
	s.between.Teardown(&p.name.freedLast)
	for b := range p.buffers.All() {
		if only == nil || b.arena == only {
			s.noteEnd(b, now, true)
		}
	}
}
