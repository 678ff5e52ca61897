package aggregate

import (
	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Since returns the time of the first event, at which all timelines begin. restored is true if
// that was the end of a checkpoint.
func (s *State) Since() (ns uint64, restored bool) { return s.first, s.restored }

// RestartTimelines begins all timelines now. Peaks stay.
func (s *State) RestartTimelines() {
	s.first = s.now
	for _, c := range s.chips {
		c.pools.RestartLines(s.now, false)
	}
}

// RestartPeaks makes the present use the peak of each chip. Processes keep their peaks.
func (s *State) RestartPeaks() {
	for _, c := range s.chips {
		c.begin(nil)
		for region := range c.pools {
			c.pools[region].Earlier = peak.Peak{}
		}
		c.pools.Restart(s.now, s.applied)
	}
}

// BeginPeaks begins all peaks and timelines now, those of processes too: the present use is the first sample.
func (s *State) BeginPeaks() {
	s.Settle()
	s.RestartPeaks()
	s.RestartTimelines()
	for _, p := range s.processes {
		for _, c := range p.chips {
			c.peaks = peak.Peaks{}
		}
	}
	s.CountPeaks(true)
}

// CountPeaks makes samples count for peaks, the present use first, or no more. Timelines have all samples.
func (s *State) CountPeaks(count bool) {
	s.Settle()
	s.pausedPeaks = !count
	for _, c := range s.chips {
		c.pools.Pause(!count, s.now, s.applied)
	}
	for _, p := range s.processes {
		for _, c := range p.chips {
			for region := range c.peaks {
				c.raise(event.Region(region), c.used.Of(event.Region(region)), 0, memory.Point{Number: s.applied, TimeNs: s.now})
			}
		}
	}
}

// raise adds a sample of a region to the peaks of the process.
func (c *processChip) raise(region event.Region, bytes, static uint64, at memory.Point) {
	if !c.chip.pools[region].Paused {
		c.peaks.Raise(region, bytes, static, at, &c.capacities()[region])
	}
}

// restartPartial makes the present use the peak of each partial chip, and the present time the
// beginning of all timelines. Only the processes keep their earlier peaks.
func (s *State) restartPartial() {
	isPartial := func(q *peak.Pool) bool { c := s.chips[q.Device]; return c != nil && c.partial }
	for _, one := range s.sites {
		for c := range one.all() {
			for i, q := range c.set.poolsOf(c.Region) {
				if isPartial(q) {
					c.atPeak.Forget(i)
				}
			}
		}
	}
	for _, p := range s.processes {
		for _, of := range p.chips {
			if of.chip.partial {
				of.chip.pools.Keep(&of.peaks)
			}
		}
	}
	some := len(s.chips) == 0
	for _, c := range s.chips {
		if c.partial {
			c.run = nil
			some = true
			c.pools.Restart(s.now, s.applied)
		}
	}
	if !some {
		return
	}
	s.first, s.restored = s.now, true
	for _, c := range s.chips {
		c.pools.RestartLines(s.now, true)
		c.partial = false
	}
}

// change saves the site's share of the latest peaks. Call it before the site changes. The shares of
// circular buffers are those of the program that ran: see run.ran.
func (c *callSite) change() {
	switch c.Region {
	case event.CB:
		return
	case event.L1:
		for _, on := range c.set.chips {
			on.chip.change()
		}
	}
	c.atPeak.Save(c.set.poolsOf(c.Region), &c.live, c.load())
}

// grew compares the peaks with the totals after a buffer was allocated.
func (p *process) grew(b *buffer) {
	for _, q := range b.set.poolsOf(b.Region) {
		q.Grew(b.SinceNs, p.state.applied, b.BeforeAttach && p.early)
	}
	for _, c := range b.set.chips {
		c.raise(b.Region, c.used.Of(b.Region), 0, memory.Point{TimeNs: b.SinceNs})
		// a trace runs programs again: those that were enqueued during its capture
		if b.Region == event.Trace && (b.BeforeAttach || !p.captures) {
			c.chip.pools[event.L1].AtLeast = true
		}
	}
}

// peakIn returns the site's allocations at the peak of the i-th pool, with all allocators.
func (c *callSite) peakIn(i int) (sum peak.Share) {
	q := c.set.poolsOf(c.Region)[i]
	for one := range c.all() {
		live := &one.live
		if c.Region == event.CB {
			live = nil
		}
		sum.Add(one.atPeak.At(i, q, live, one.load()))
	}
	return sum
}

// Timelines returns the timelines of all regions that were ever used, in order of chip and
// region.
func (s *State) Timelines() (list []memory.RegionTimeline) {
	s.settle()
	for _, q := range poolsOf(s.byID()...) {
		if q.Highest().Bytes > 0 {
			list = append(list, memory.RegionTimeline{
				Device: q.Device, Region: q.Region, Timeline: q.Line.Clone(), Static: q.StaticLine.Clone(),
			})
		}
	}
	return list
}

// Level returns the bytes in use by buffers in a region of a chip, as the timelines count them.
func (s *State) Level(device int, region event.Region) uint64 {
	c := s.chips[device]
	if c == nil || int(region) >= event.BankedRegions {
		return 0
	}
	return c.pools[region].Bytes
}

// RegionPeaks returns the peaks of all regions that were ever used, in order of
// chip and region.
func (s *State) RegionPeaks() (list []memory.RegionPeak) {
	s.settle()
	holders := make(map[*peak.Pool][]memory.SiteAmount)
	for _, c := range s.sites {
		if int(c.Region) >= event.BankedRegions {
			continue
		}
		for i, q := range c.set.poolsOf(c.Region) {
			at := c.peakIn(i)
			if at.Count == 0 {
				continue
			}
			one := memory.SiteAmount{Site: c.Site, Amount: at.Amount}
			if c.Region == event.L1 {
				one.Bytes = at.PerBank
			}
			holders[q] = append(holders[q], one)
		}
	}
	for _, q := range poolsOf(s.byID()...) {
		if q.Peak.Bytes > 0 || q.Earlier.Bytes > 0 {
			list = append(list, q.View(holders[q]))
		}
	}
	return list
}

// peakPoints returns the peaks of all regions of chips that were ever used.
func peakPoints(chips ...*chip) (list []memory.PeakPoint) {
	for _, q := range poolsOf(chips...) {
		if q.Peak.Bytes > 0 {
			list = append(list, q.Point())
		}
	}
	return list
}

// poolsOf returns the pools of chips, in order of chip and region.
func poolsOf(chips ...*chip) (list []*peak.Pool) {
	for _, c := range chips {
		for region := range c.pools {
			list = append(list, &c.pools[region])
		}
	}
	return list
}
