package aggregate

import (
	"iter"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/internal/births"
	"ttmem/aggregate/internal/churn"
	"ttmem/aggregate/internal/past"
	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/internal/space"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/uses"
	"ttmem/tracer/event"
)

// A callSite is one call stack of a process that allocates in one region with one allocator,
// with its tallies. Every view counts by call site. Circular buffers and kernels have one for
// each chip, because they end on one chip after the other.
type callSite struct {
	memory.Site
	*arena // of all its allocations

	// live counts live allocations on each of the chips, and allocated all allocations so
	// far. ended counts those that were live when their device was closed or their process
	// ended, and fresh the live ones that were allocated after State.freshSince.
	live                    memory.Tally
	allocated, ended, fresh memory.Amount
	// since is when live was last empty.
	since uint64
	// atPeak counts the allocations that were live at the peak of each pool of the set.
	atPeak peak.Shares
	// other is the same call site with another allocator on the same chips, or nil. Views
	// show them as one.
	other *callSite
	run   births.Site
	// temporary counts those that were freed soon.
	temporary churn.Site
	// overlapped is how many of its buffers had addresses of another allocator's buffer, without those for which
	// the budget had no room: see noteOverlap.
	overlapped uint32
}

func (c *callSite) key() memory.SiteKey { return c.KeyOn(c.set.devices) }

// UID returns the user of the site's process.
func (c *callSite) UID() int { return c.set.process.about.UID }

// Chips returns the number of chips that each buffer counts on, at least 1.
func (c *callSite) Chips() uint64 { return uint64(max(1, c.set.count)) }

// An arena has the buffers of one allocator of a process on one set of chips. They all end
// when the device is closed.
type arena struct {
	set       *deviceSet
	allocator uint64 // 0: circular buffers and kernels, which have none
	closed    bool
	// blocks are the addresses of its buffers by region; nil until free space is read.
	blocks space.Lists
	// scattered is the number of its L1 buffers on single cores whose address is not known, or
	// not the same on all cores.
	scattered int
	// places are the addresses in which uses are searched, once there are any.
	places uses.Places
	// loads are the live buffers of its call sites on single cores.
	loads map[*callSite]*cores.Load
}

// A processName identifies a process for its call sites, also after its end.
type processName struct {
	pid  int
	comm string
	// about comes from its ProcessStart event.
	about memory.About
	// outside is the user to whom it counts, if that is not about.UID: see event.Event.Count.
	outside int
	run     births.Process
	// covers counts its buffers in Covers. uncovered is true once there were too many: its overlaps are not
	// followed any more.
	covers    int
	uncovered bool
	// freedLast are the buffers that were freed since the latest allocation, if State.between
	// needs them.
	freedLast []past.Ended
}

// minSites is the least number of sites that are kept: most of them will allocate again.
const minSites = 1 << 12

// site returns the call site of an arena, and creates it if needed. It sets the PID and Devices.
func (p *process) site(a *arena, of memory.Site) *callSite {
	of.PID, of.Devices = a.set.process.pid, a.set.ids
	if r := *a.set.recentOf(of.Stack); r != nil && r.arena == a && r.Stack == of.Stack && r.Region == of.Region && r.Layout == of.Layout &&
		r.Static == of.Static && r.BeforeAttach == of.BeforeAttach && r.PerCore == of.PerCore {
		return r
	}
	key := of.KeyOn(a.set.devices)
	one := a.set.sites[key]
	for one != nil && one.arena != a {
		one = one.other
	}
	if one == nil && !p.fitsSite() {
		if p.beyond(); of.Stack == nil {
			return nil
		}
		of.Stack = nil // the figures stay right without it
		return p.site(a, of)
	}
	if one == nil {
		one = p.state.newSite(a, of, key)
	}
	*a.set.recentOf(of.Stack) = one
	return one
}

// fitsSite reports whether there is room for one more call site of a process, if need be in the place of
// idle ones of its user, or of those of its processes that ended.
func (p *process) fitsSite() bool {
	s := p.state
	of, room := p.name.user(), s.rooms.sites
	if room.Take(of, 1) {
		return true
	}
	if s.keepSites || room.Of(of) < s.triedSites[of]+maxSites/4 { // each try looks at all
		return false
	}
	s.forget(func(c *callSite) bool { return c.set.process.user() == of && c.isIdle() && !c.current() })
	if room.Of(of) > maxSites/2 { // those at the peaks, of processes that ended
		s.forget(func(c *callSite) bool { return c.set.process.user() == of && c.set.ended })
	}
	s.triedSites[of] = room.Of(of)
	return room.Take(of, 1)
}

func (s *State) newSite(a *arena, of memory.Site, key memory.SiteKey) *callSite {
	one := &callSite{Site: of, arena: a, atPeak: peak.NewShares(a.set.poolsOf(of.Region))}
	if first := a.set.sites[key]; first != nil {
		s.takeClosed(first)
		one.other, first.other = first.other, one
		return one
	}
	s.forgetIdle()
	a.set.sites[key] = one
	if n := len(a.set.recent); len(a.set.sites) > n && n < mostRecent {
		a.set.recent = make([]*callSite, 2*n)
	}
	s.sites = append(s.sites, one)
	return one
}

// takeClosed takes over the tallies of the same sites of closed devices, so that there is
// only one for each open allocator.
func (s *State) takeClosed(c *callSite) {
	for at := &c.other; *at != nil; {
		one := *at
		if !one.closed {
			at = &one.other
			continue
		}
		c.change()
		one.change()
		c.allocated.Add(one.allocated)
		c.ended.Add(one.ended)
		c.temporary.Add(one.temporary.Amount)
		c.atPeak.Add(one.atPeak)
		*at = one.other
		s.rooms.sites.Take(c.set.process.user(), -1)
	}
}

// all returns this call site and the same one with other allocators.
func (c *callSite) all() iter.Seq[*callSite] {
	return func(yield func(*callSite) bool) {
		for ; c != nil && yield(c); c = c.other {
		}
	}
}

// addTo counts an allocation of a site.
func (p *process) addTo(c *callSite, t memory.Tally, now uint64) {
	c.change()
	if c.live.Count == 0 {
		c.since = now
	}
	c.allocated.Add(t.Amount)
	p.countIn(c, t, now)
}

// countIn counts a live allocation of a site from the time since.
func (p *process) countIn(c *callSite, t memory.Tally, since uint64) {
	c.live.Add(t)
	c.countFresh(t, since, p.state.freshSince)
}

// removeFrom subtracts an allocation from the time since.
func (p *process) removeFrom(c *callSite, t memory.Tally, since uint64, reason event.Reason) {
	c.change()
	c.live.Add(t.Negative())
	if reason.IsEnd() {
		c.ended.Add(t.Amount)
	}
	if since > p.state.freshSince {
		c.fresh.Sub(t.Amount)
	}
}

// isIdle reports whether a site has no live allocations and had none at a peak, with any
// allocator.
func (c *callSite) isIdle() bool {
	for one := range c.all() {
		if one.live.Count > 0 {
			return false
		}
	}
	for i := range c.atPeak {
		if c.peakIn(i).Count > 0 {
			return false
		}
	}
	return true
}

// KeepSites makes the state keep all call sites, also idle ones and those of processes that
// ended, so that a Profile has every allocation.
func (s *State) KeepSites() { s.keepSites = true }

// forgetIdle removes idle sites if there are many. It waits until the number has doubled, so
// that the cost for each new site is constant.
func (s *State) forgetIdle() {
	if s.keepSites || len(s.sites) < 2*max(minSites, s.keptSites) {
		return
	}
	s.forget(func(c *callSite) bool { return c.isIdle() && !c.current() })
	s.keptSites = len(s.sites)
}

// forgetEnded removes the sites of a process that ended, except those that were live at a
// peak. It resolves the stacks of these: an unresolved stack keeps all data about the process's
// code in memory.
func (s *State) forgetEnded(p *process) {
	if s.keepSites {
		return
	}
	s.forget(func(c *callSite) bool { return c.set.process == p.name && c.isIdle() })
	for _, c := range s.sites {
		if c.set.process == p.name {
			c.Stack.Calls()
		}
	}
}

func (s *State) forget(selected func(*callSite) bool) {
	var gone []*callSite
	s.sites = slices.DeleteFunc(s.sites, func(c *callSite) bool {
		if !selected(c) {
			return false
		}
		for range c.all() {
			s.rooms.sites.Take(c.set.process.user(), -1)
		}
		delete(c.set.sites, c.key())
		*c.set.recentOf(c.Stack) = nil
		gone = append(gone, c)
		return true
	})
	s.temporaries.forgot(gone)
}

// leastRecent and mostRecent bound how many sites of a set are cached: as many as it has. Programs allocate
// at the same sites again and again.
const leastRecent, mostRecent = 16, 1 << 10

// recentOf returns the cache entry of a stack.
func (d *deviceSet) recentOf(stack *event.Stack) **callSite {
	return &d.recent[memory.StackID(stack)%uint64(len(d.recent))]
}

// poolsOf returns the pools in which a region counts, one for each chip: circular buffers are
// in L1, and kernels in DRAM.
func (d *deviceSet) poolsOf(region event.Region) []*peak.Pool {
	switch region {
	case event.CB:
		region = event.L1
	case event.Kernel:
		region = event.DRAM
	}
	return d.pools[region]
}
