package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// A siteKey tells the call sites of a process on the same chips apart.
type siteKey struct {
	stackID uint64 // 0: not known
	region  event.Region
	layout  event.Layout
	static  event.StaticKind
	before  bool // allocated before the attach
}

// A callSite is one call stack of a process that allocates in one region of the same
// chips, with the tallies of what it allocated. It is what every view counts by. A
// circular buffer and the kernels of a program have one for each chip, as they end on one
// chip after the other.
type callSite struct {
	siteKey
	set     *deviceSet
	process *processName
	stack   *event.Stack // nil: not known

	// live is what there is now on each of the chips, allocated what was ever
	// allocated, and ended what of that was live when its device was closed or its
	// process ended. fresh is what of live was allocated after State.freshSince.
	live, allocated, ended, fresh Amount
	// livePerBank is what live takes of each bank, in bytes.
	livePerBank uint64
	// since is when live was last empty.
	since uint64
	// each is the size of what is live, in bytes on each chip; mixed is true where
	// there are several.
	each  uint64
	mixed bool
	// atPeak is what was live at the peak of each pool of the set.
	atPeak []siteAtPeak
	run    siteRun
}

// A siteAtPeak is what a site had at the peak of the number serial. It is saved when the
// site changes after that peak, so that a new peak costs nothing, however many sites there
// are.
type siteAtPeak struct {
	serial uint64
	Amount
	perBank uint64
}

// processName names a process, also after its end.
type processName struct {
	pid           int
	comm, command string
	run           processRun
}

// An Amount counts buffers, circular buffers or programs' kernels, and their bytes.
type Amount struct{ Count, Bytes uint64 }

func (a *Amount) add(b Amount) { a.Count += b.Count; a.Bytes += b.Bytes }
func (a *Amount) sub(b Amount) { a.Count -= b.Count; a.Bytes -= b.Bytes }

// minSites is how many sites are kept at least, as most of them will allocate again.
const minSites = 1 << 12

// site returns the call site of that key, which it makes where there is none.
func (s *State) site(p *process, set *deviceSet, key siteKey, stack *event.Stack) *callSite {
	key.stackID = stackID(stack)
	recent := set.recentOf(key.stackID)
	if *recent != nil && (*recent).siteKey == key {
		return *recent
	}
	one := set.sites[key]
	if one == nil {
		s.forgetIdle()
		one = s.newSite(p.name, set, key, stack)
	}
	*recent = one
	return one
}

func (s *State) newSite(name *processName, set *deviceSet, key siteKey, stack *event.Stack) *callSite {
	one := &callSite{siteKey: key, set: set, process: name, stack: stack}
	pools := set.poolsOf(key.region)
	one.atPeak = make([]siteAtPeak, len(pools))
	for i, q := range pools {
		one.atPeak[i].serial = q.serial // there was nothing at the peaks before
	}
	set.sites[key] = one
	s.sites = append(s.sites, one)
	return one
}

// save keeps what was live at the latest peaks, before it changes.
func (c *callSite) save() {
	for i, q := range c.set.poolsOf(c.region) {
		if at := &c.atPeak[i]; at.serial != q.serial {
			*at = siteAtPeak{q.serial, c.live, c.livePerBank}
		}
	}
}

// peakIn is what was live at the peak of the pool of that number.
func (c *callSite) peakIn(i int) siteAtPeak {
	if at := c.atPeak[i]; at.serial == c.set.poolsOf(c.region)[i].serial {
		return at
	}
	return siteAtPeak{0, c.live, c.livePerBank}
}

// add counts something that was allocated at a time, of so many bytes on each chip.
func (s *State) addTo(c *callSite, bytes, perBank, now uint64) {
	c.save()
	if c.live.Count == 0 {
		c.since, c.each, c.mixed = now, bytes, false
	}
	c.mixed = c.mixed || bytes != c.each
	one := Amount{1, bytes}
	c.live.add(one)
	c.allocated.add(one)
	c.livePerBank += perBank
	if now > s.freshSince {
		c.fresh.add(one)
	}
}

// removeFrom takes off something that was allocated at the time since.
func (s *State) removeFrom(c *callSite, bytes, perBank, since uint64, reason event.Reason) {
	c.save()
	one := Amount{1, bytes}
	c.live.sub(one)
	c.livePerBank -= perBank
	if isEnd(reason) {
		c.ended.add(one)
	}
	if since > s.freshSince {
		c.fresh.sub(one)
	}
}

// isEnd reports whether something ended with its device or its process: nobody freed it.
func isEnd(reason event.Reason) bool {
	return reason == event.ReasonDeviceClose || reason == event.ReasonProcessExit
}

// isIdle reports whether nothing is live at a site, nor was at a peak.
func (c *callSite) isIdle() bool {
	if c.live.Count > 0 {
		return false
	}
	for i := range c.atPeak {
		if c.peakIn(i).Count > 0 {
			return false
		}
	}
	return true
}

// KeepSites has the state keep all call sites, for a Profile of all that was ever
// allocated: also those that are idle, and those of processes that ended.
func (s *State) KeepSites() { s.keepSites = true }

// forgetIdle forgets idle sites where there are many. It waits until there are twice as
// many as it left, so that it costs each new site the same.
func (s *State) forgetIdle() {
	if s.keepSites || len(s.sites) < 2*max(minSites, s.keptSites) {
		return
	}
	s.forget(func(c *callSite) bool {
		if !c.isIdle() || c.current() {
			return false
		}
		s.keepSurvivors(c, 0)
		return true
	})
	s.keptSites = len(s.sites)
}

// forgetEnded forgets the sites of a process that ended, but for those that were live at
// a peak. Of these it looks up the names: a stack that is not looked up holds on to all
// that is known of the process's code.
func (s *State) forgetEnded(p *process) {
	if s.keepSites {
		return
	}
	replaceable := s.replaceable()
	s.forget(func(c *callSite) bool {
		if c.process != p.name {
			return false
		}
		s.keepSurvivors(c, replaceable[place{c.set, c.region}])
		if c.isIdle() {
			return true
		}
		c.stack.Calls()
		return false
	})
}

func (s *State) forget(which func(*callSite) bool) {
	s.sites = slices.DeleteFunc(s.sites, func(c *callSite) bool {
		if !which(c) {
			return false
		}
		delete(c.set.sites, c.siteKey)
		if recent := c.set.recentOf(c.stackID); *recent == c {
			*recent = nil
		}
		return true
	})
}

// recentSites is how many sites of a set are found without a look-up. Programs allocate at
// the same few again and again.
const recentSites = 16

// recentOf is where a site of that stack is kept that was looked up lately.
func (d *deviceSet) recentOf(stackID uint64) **callSite { return &d.recent[stackID%recentSites] }

// poolsOf are the pools whose peaks a region is part of, one for each chip: circular
// buffers lie in L1, and kernels in DRAM.
func (d *deviceSet) poolsOf(region event.Region) []*pool { return d.pools[poolRegion(region)] }

func poolRegion(region event.Region) event.Region {
	switch region {
	case event.CB:
		return event.L1
	case event.Kernel:
		return event.DRAM
	}
	return region
}
