package aggregate

import (
	"ttmem/aggregate/births"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/survivors"
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
		Site: c.view(), Comm: process.comm, Command: process.about.Command,
		Allocated: c.allocated.Count, WorkedFromNs: process.run.FromNs, WorkedToNs: process.run.ToNs,
	}
}

// surviving returns the sum of a site's survivors. If its allocator is closed now, they include
// the buffers that ended since the latest allocation of its process, and freedAtTeardown counts
// those that were freed since then.
func (c *callSite) surviving(closed bool) (total, freedAtTeardown memory.Amount) {
	total = memory.Amount{Count: c.live.Count, Bytes: c.live.Bytes * c.Chips()}
	if closed {
		var ended memory.Amount
		ended, freedAtTeardown = c.run.Ended(&c.set.process.run)
		total.Add(ended)
	}
	return total, freedAtTeardown
}

// survivors returns the survivors of a site now; closed is true if its allocator is closed now.
func (c *callSite) survivors(now uint64, closed bool) survivors.Of[*processName] {
	v := survivors.Of[*processName]{Survivors: c.named(), Process: c.set.process}
	v.Amount, v.FreedAtTeardown = c.surviving(closed)
	if v.Count+v.FreedAtTeardown.Count > 0 {
		v.AgeNs = now - min(now, c.since)
	}
	v.Run = c.run.Run(&c.set.process.run, closed)
	return v
}

// saveSurvivors saves the survivors of the call sites on a set of chips: those of an arena that
// is closed, or all if only is nil. It must be called before their buffers are removed. Of many
// call sites it saves those with the most survivors, and adds up the others. It resolves the
// stacks that it saves: an unresolved stack keeps all data about the process's code in memory.
func (s *State) saveSurvivors(set *deviceSet, only *arena) {
	ended := make([]rankedSite, 0, len(set.sites))
	for c := range set.callSites(only) {
		if c.run.Open || c.before && c.live.Count > 0 {
			total, teardown := c.surviving(true)
			total.Add(teardown)
			ended = append(ended, rankedSite{c, total.Count, total.Bytes, c.stackID})
		}
	}
	mostFirst(ended, 0) // in an order that decides below which are kept
	replaceable := s.replaceable(set)
	for i, one := range ended {
		switch c := one.callSite; {
		case one.first == 0:
		case i >= survivors.Most:
			total, _ := c.surviving(true)
			s.endedSurvivors.Others.Add(total)
		default:
			v := c.survivors(s.now, true)
			v.Run.Replaceable = replaceable[c.region]
			c.stack.Calls()
			s.endedSurvivors.Add(&v)
		}
		one.run = births.Site{}
	}
	s.endedSurvivors.Trim()
}

// Survivors returns the survivors by call site, in no order. Of processes that ended or closed
// their device it has the call sites with the most; others is the sum of the rest. The cost
// depends on the number of call sites.
func (s *State) Survivors() (list []memory.Survivors, others memory.Amount) {
	var all []survivors.Of[*processName]
	for _, v := range s.endedSurvivors.All {
		if !v.BeforeAttach { // whose births are not known
			all = append(all, *v)
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
			v.Run.Replaceable = replaceable[c.set][c.region]
			all = append(all, v)
		}
	}
	return survivors.Merge(all), s.endedSurvivors.Others
}

// EndedSurvivors returns the buffers that ended with their device or process, by call site, with
// the bytes on each chip. It has the call sites with the most; others is the sum of the rest.
func (s *State) EndedSurvivors() (list []memory.SiteAmount, others memory.Amount) {
	return s.endedSurvivors.Sites(), s.endedSurvivors.Others
}

// replaceable returns how many buffers from before the attach were freed on these chips, by
// region.
func (s *State) replaceable(set *deviceSet) map[event.Region]uint64 {
	freed := make(map[event.Region]uint64)
	for c := range set.callSites(nil) {
		if c.before {
			freed[c.region] += c.allocated.Count - c.live.Count - c.ended.Count
		}
	}
	return freed
}

// BuffersAllocated returns how many buffers were allocated in all, without those from before
// the attach.
func (s *State) BuffersAllocated() uint64 { return s.allocations }
