package aggregate

import (
	"cmp"
	"slices"

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
		for region := range c.pools {
			c.pools[region].RestartLines(s.now)
		}
	}
}

// Timelines returns the timelines of all regions that were ever used, in order of chip and
// region.
func (s *State) Timelines() (list []memory.RegionTimeline) {
	s.settle()
	for _, q := range s.allPools() {
		if q.chip != s.unplaced && q.Highest().Bytes > 0 {
			list = append(list, memory.RegionTimeline{
				Device: q.chip.id, Region: q.Region, Timeline: q.Line.Clone(), Static: q.StaticLine.Clone(),
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
func (s *State) RegionPeaks() []memory.RegionPeak {
	s.settle()
	holders := s.peakHolders()
	var list []memory.RegionPeak
	for _, q := range s.allPools() {
		if q.chip != s.unplaced && (q.Peak.Bytes > 0 || q.Earlier.Bytes > 0) {
			list = append(list, s.peakOf(q, holders[q]))
		}
	}
	return list
}

func (s *State) peakOf(q *pool, holders []memory.SiteAmount) memory.RegionPeak {
	view := memory.RegionPeak{
		Device: q.chip.id, Region: q.Region, TimeNs: q.Peak.TimeNs, Bytes: q.Peak.Bytes, AtLeast: q.AtLeast,
		CapacityBytes: cmp.Or(q.Peak.Capacity, q.Capacity()), StaticBytes: q.Peak.Static, Holders: holders,
		Timeline: q.Line.Clone(), StaticTimeline: q.StaticLine.Clone(),
	}
	var covered uint64
	if q.Peak.Static > 0 {
		for _, p := range q.programs {
			view.Programs = append(view.Programs, p.PeakProgram)
			covered += p.Bytes
		}
	}
	if q.Shared {
		buffers := q.Peak.Bytes - q.Peak.Static
		for i := range holders {
			buffers -= min(buffers, holders[i].Bytes)
		}
		view.OthersStaticBytes = q.Peak.Static - min(q.Peak.Static, covered)
		view.OthersBytes = buffers + view.OthersStaticBytes
	}
	if q.Earlier.Bytes > q.Peak.Bytes {
		view.Earlier = &memory.EarlierPeak{
			TimeNs: q.Earlier.TimeNs, Bytes: q.Earlier.Bytes,
			CapacityBytes: cmp.Or(q.Earlier.Capacity, q.Capacity()),
		}
	}
	return view
}

// peakHolders returns the buffers of each peak by call site.
func (s *State) peakHolders() map[*pool][]memory.SiteAmount {
	holders := make(map[*pool][]memory.SiteAmount)
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
				one.Bytes = at.perBank
			}
			holders[q] = append(holders[q], one)
		}
	}
	for _, list := range holders {
		slices.SortFunc(list, func(a, b memory.SiteAmount) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), a.Compare(&b.Site), cmp.Compare(b.Count, a.Count))
		})
	}
	return holders
}
