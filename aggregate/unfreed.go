package aggregate

import (
	"slices"

	"ttmem/aggregate/holders"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

const (
	// shownHolders is the number of call stacks that a RegionTotal has. A State keeps as
	// many of each process that ended.
	shownHolders = 16
	// maxHolders is the largest number of stacks of a running process, which may open and close
	// devices any number of times. Above it the smaller half is added up.
	maxHolders = 1024
)

// share returns buffers of a call site as a share of its process, on all its chips.
func (c *callSite) share(t tally, reason event.Reason) holders.Share {
	t = t.on(len(c.set.chips))
	return holders.Share{
		Region: c.region, Reason: reason, SizeBytes: t.size,
		Holder: memory.Holder{Bytes: t.Bytes, Count: t.Count, Stack: c.stack, BeforeAttach: c.stack == nil && c.before},
	}
}

// addUnfreed adds buffers that the process did not free.
func (p *process) addUnfreed(s holders.Share) {
	p.unfreed.Add(s)
	if len(p.unfreed) > maxHolders {
		p.unfreed = p.unfreed.Largest(maxHolders / 2)
	}
}

// addUnfreedSites adds the live buffers of call sites. If there are many sites, the smaller
// ones are added up.
func (p *process) addUnfreedSites(sites []rankedSite, reason event.Reason) {
	mostFirst(sites, maxHolders)
	for i, one := range sites {
		share := one.share(one.live, reason)
		if i >= maxHolders {
			share.MergeStack()
		}
		p.addUnfreed(share)
	}
}

// WithHolders returns the snapshot with this State's totals of live buffers in place of its
// own, and with the Holders of these. Its cost depends on the number of call sites. The
// snapshot may be of another State with the same processes.
func (s *State) WithHolders(snap *memory.Snapshot) *memory.Snapshot {
	with := *snap
	with.Processes = slices.Clone(snap.Processes)
	for i := range with.Processes {
		view := &with.Processes[i]
		p := s.known(view.PID)
		if p == nil || view.Exit != nil {
			continue
		}
		live := make(holders.Table)
		for _, set := range p.sets {
			for c := range set.callSites(nil) {
				if c.live.Count > 0 {
					live.Add(c.share(c.live, event.NoReason))
				}
			}
		}
		view.Live = live.Totals(shownHolders)
	}
	return &with
}

// liveTotals returns the totals of live buffers, without holders.
func (p *process) liveTotals() (list []memory.RegionTotal) {
	for region, t := range p.live {
		if t.Count > 0 {
			list = append(list, memory.RegionTotal{
				Region: event.Region(region).String(), Buffers: t.Count, SizeBytes: t.size, AllocatedBytes: t.Bytes,
			})
		}
	}
	return list
}
