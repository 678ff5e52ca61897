package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// FreshSince makes Fresh count allocations after a time. If that is before the latest event, all
// live allocations are counted again.
func (s *State) FreshSince(ns uint64) {
	s.freshSince = ns
	for _, first := range s.sites {
		for c := range first.all() {
			c.fresh = memory.Amount{}
		}
	}
	if ns >= s.now {
		return
	}
	for _, p := range s.processes {
		for b := range p.buffers.All() {
			b.callSite.countFresh(b.tally(), b.SinceNs, ns)
		}
		for _, c := range p.chips {
			for _, g := range c.programs {
				for i := range g.static {
					if entry := &g.static[i]; entry.site != nil {
						entry.site.countFresh(entry.tally(), entry.from.since, ns)
					}
				}
				if k := g.kernel; k != nil {
					k.site.countFresh(k.tally(), k.from.since, ns)
				}
			}
		}
	}
}

// countFresh counts an allocation of the time since, if that is after freshSince.
func (c *callSite) countFresh(t memory.Tally, since, mark uint64) {
	if since > mark {
		c.fresh.Add(t.Amount)
	}
}

// CallSites returns the call sites in no order, including some without live buffers. Circular
// buffers inside an L1 buffer do not count. The cost depends on the number of call sites, not
// on that of buffers.
func (s *State) CallSites() []memory.CallSite {
	var list []memory.CallSite
	// Circular buffers have a site for each chip. Equal ones become one.
	type same struct {
		memory.SiteKey
		process                       *processName
		live, fresh, allocated, ended memory.Amount
	}
	index := make(map[same]int)
	statics := make(map[*callSite]int) // sites of circular buffers, on the first of their chips
	for _, c := range s.sites {
		if c.Region == event.Kernel {
			continue
		}
		h := c.sum()
		if c.Region == event.CB {
			k := same{c.KeyOn(""), c.set.process, h.Amount, h.Fresh, h.Allocated, h.Ended}
			if at, ok := index[k]; ok {
				one := &list[at]
				one.Devices = append(slices.Clip(one.Devices), h.Devices...)
				slices.Sort(one.Devices)
				one.AtPeak = append(one.AtPeak, h.AtPeak...)
				one.SinceNs = min(one.SinceNs, h.SinceNs)
				continue
			}
			index[k] = len(list)
			for one := range c.all() {
				statics[one] = len(list)
			}
		}
		list = append(list, h)
	}
	addPrograms(list, statics)
	return list
}

// addPrograms adds the programs of circular buffers. statics are their sites, by index in the list.
func addPrograms(list []memory.CallSite, statics map[*callSite]int) {
	chips := make(map[*processChip]bool)
	for c := range statics {
		for _, of := range c.set.chips {
			chips[of] = true
		}
	}
	for c := range chips {
		for id, g := range c.programs {
			use := g.use(&cores.Load{})
			sums := make(map[int]uint64)
			for i := range g.static {
				e := &g.static[i]
				if at, ok := statics[e.site]; ok && e.place.Set.Has(cores.Core{X: use.X, Y: use.Y}) {
					sums[at] += e.place.BytesPerCore()
				}
			}
			for at, bytes := range sums {
				list[at].Programs = append(list[at].Programs, memory.ProgramShare{ID: id, BytesPerCore: bytes})
			}
		}
	}
	for _, at := range statics {
		slices.SortFunc(list[at].Programs, func(a, b memory.ProgramShare) int { return cmp.Compare(a.ID, b.ID) })
	}
}

func (c *callSite) sum() memory.CallSite {
	h := memory.CallSite{SiteAmount: memory.SiteAmount{Site: c.Site}, SinceNs: c.since}
	for one := range c.all() {
		switch {
		case one.live.Count == 0:
		case h.Count == 0:
			h.SinceNs = one.since
		default:
			h.SinceNs = min(h.SinceNs, one.since)
		}
		h.Amount.Add(one.live.Amount)
		h.Fresh.Add(one.fresh)
		h.Allocated.Add(one.allocated)
		h.Ended.Add(one.ended)
	}
	pools := c.set.poolsOf(c.Region)
	h.AtPeak = make([]memory.SiteAtPeak, len(pools))
	for i, q := range pools {
		h.AtPeak[i] = memory.SiteAtPeak{Device: q.Device, Number: q.Peak.Number, Amount: c.peakIn(i).Amount}
	}
	return h
}

// Profile returns the allocations by call stack. It is complete only after KeepSites. Its
// cost depends on the number of call sites.
func (s *State) Profile() *memory.Profile {
	return s.ProfileOf(func(int) bool { return true })
}

// ProfileOf returns the part of the Profile that belongs to the processes of selected users.
// Peaks are those of all users.
func (s *State) ProfileOf(selected func(uid int) bool) *memory.Profile {
	p := &memory.Profile{FirstNs: s.first, LastNs: s.now}
	type key struct {
		stack       uint64
		pid, device int
		region      event.Region
	}
	index := make(map[key]int, len(s.sites))
	names := make(map[int]*processName)
	for _, c := range s.sites {
		if !selected(c.UID()) {
			continue
		}
		names[c.PID] = c.set.process // the latest of the id
		h := c.sum()
		for _, peak := range h.AtPeak {
			// the same stack may allocate on several sets with the chip in it
			k := key{memory.StackID(c.Stack), c.PID, peak.Device, c.Region}
			at, ok := index[k]
			if !ok {
				at = len(p.Samples)
				index[k] = at
				p.Samples = append(p.Samples, memory.Sample{PID: k.pid, Device: k.device, Region: k.region, Stack: c.Stack})
			}
			one := &p.Samples[at]
			one.Allocated.Add(h.Allocated)
			one.Live.Add(h.Amount)
			one.Ended.Add(h.Ended)
			one.Peak.Add(peak.Amount)
		}
	}
	slices.SortStableFunc(p.Samples, func(a, b memory.Sample) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Region, b.Region))
	})
	for pid, running := range s.processes {
		if selected(running.name.about.UID) {
			names[pid] = running.name
		}
	}
	for _, pid := range sortedKeys(names) {
		p.Processes = append(p.Processes, memory.ProfileProcess{PID: pid, Comm: names[pid].comm, Command: names[pid].about.Command})
	}
	p.Peaks = peakPoints(append([]*chip{s.unplaced}, s.byID()...)...)
	return p
}
