package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Since returns the time of the first event, at which all timelines begin. restored is true if
// that was the end of a checkpoint.
func (s *State) Since() (ns uint64, restored bool) { return s.first, s.restored }

// restart sets the peaks of partial chips to the present use, and begins all timelines now.
func (s *State) restart(now uint64) {
	s.first, s.restored = now, true
	for _, c := range s.chips {
		for region := range c.pools {
			if c.partial {
				c.pools[region].restart(now, s.applied)
			}
			c.pools[region].redraw(now)
		}
		c.partial = false
	}
}

// RestartTimelines begins all timelines now. Peaks stay.
func (s *State) RestartTimelines() {
	s.first = s.now
	for _, c := range s.chips {
		for region := range c.pools {
			q := &c.pools[region]
			q.line.Restart(s.now, q.level)
			q.staticLine.Restart(s.now, q.levelStatic)
		}
	}
}

// Timelines returns the timelines of all regions that were ever used, in order of chip and
// region.
func (s *State) Timelines() (list []memory.RegionTimeline) {
	for _, q := range s.allPools() {
		if q.chip != s.unplaced && q.highest().bytes > 0 {
			list = append(list, memory.RegionTimeline{
				Device: q.chip.id, Region: q.region, Timeline: q.line.Clone(), Static: q.staticLine.Clone(),
			})
		}
	}
	return list
}

// RegionPeaks returns the peaks of all regions that were ever used, in order of
// chip and region.
func (s *State) RegionPeaks() []memory.RegionPeak {
	holders := s.peakHolders()
	var list []memory.RegionPeak
	for _, q := range s.allPools() {
		if q.chip != s.unplaced && (q.peak.bytes > 0 || q.earlier.bytes > 0) {
			list = append(list, s.peakOf(q, holders[q]))
		}
	}
	return list
}

func (s *State) peakOf(q *pool, holders []memory.SiteAmount) memory.RegionPeak {
	view := memory.RegionPeak{
		Device: q.chip.id, Region: q.region, TimeNs: q.peak.time, Bytes: q.peak.bytes,
		CapacityBytes: cmp.Or(q.peak.capacity, q.holds()), StaticBytes: q.peak.static, Holders: holders,
		Timeline: q.line.Clone(), StaticTimeline: q.staticLine.Clone(),
	}
	if q.region == event.L1 && q.peak.bytes > 0 {
		view.Programs = s.programsAt(q)
	}
	if q.earlier.bytes > q.peak.bytes {
		view.Earlier = &memory.EarlierPeak{
			TimeNs: q.earlier.time, Bytes: q.earlier.bytes,
			CapacityBytes: cmp.Or(q.earlier.capacity, q.holds()), OfAllUsers: q.ofAllUsers,
		}
	}
	return view
}

// peakHolders returns the buffers of each peak by call site.
func (s *State) peakHolders() map[*pool][]memory.SiteAmount {
	holders := make(map[*pool][]memory.SiteAmount)
	for _, c := range s.sites {
		if int(c.region) >= event.BankedRegions {
			continue
		}
		for i, q := range c.set.poolsOf(c.region) {
			at := c.peakIn(i)
			if at.Count == 0 {
				continue
			}
			bytes := at.Bytes
			if c.region == event.L1 {
				bytes = at.perBank
			}
			holders[q] = append(holders[q], memory.SiteAmount{Site: c.view(), Amount: memory.Amount{Count: at.Count, Bytes: bytes}})
		}
	}
	for _, list := range holders {
		slices.SortFunc(list, func(a, b memory.SiteAmount) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID), compareStacks(a.Stack, b.Stack),
				cmp.Compare(a.Layout, b.Layout), slices.Compare(a.Devices, b.Devices), cmp.Compare(b.Count, a.Count),
				memory.CompareBools(a.BeforeAttach, b.BeforeAttach))
		})
	}
	return holders
}

// PeakSites returns what was live at the peak of each region of each chip, by call site and peak,
// in no order. Circular buffers are those at the peak of L1. The bytes are those of all banks or
// cores, as CallSites has them.
func (s *State) PeakSites() (list []memory.SiteAmount) {
	for _, c := range s.sites {
		if c.region == event.Kernel {
			continue
		}
		at := make(map[uint64]int) // a peak of several chips at one moment is one
		for i, q := range c.set.poolsOf(c.region) {
			live := c.peakIn(i).Amount
			if q.chip == s.unplaced || live.Count == 0 {
				continue
			}
			known, ok := at[q.peak.number]
			if !ok {
				known = len(list)
				at[q.peak.number] = known
				site := c.view()
				site.Devices = nil
				list = append(list, memory.SiteAmount{Site: site, Amount: live})
			}
			list[known].Devices = append(list[known].Devices, q.chip.id)
		}
	}
	return list
}

// compareStacks orders stacks in the same way on all chips.
func compareStacks(a, b *event.Stack) int { return cmp.Compare(memory.StackID(a), memory.StackID(b)) }

// programsAt returns the programs at the peak of the L1 of a chip.
func (s *State) programsAt(q *pool) []memory.PeakProgram {
	entries := s.staticsAt(q)
	var usage cores.Usage
	for i := range entries {
		usage.Add(entries[i].place)
	}
	core, found := usage.Fullest()
	if !found || q.peak.static == 0 {
		return nil
	}
	if usage.Max() != q.peak.static { // buffers on single cores made another core the fullest
		core = q.peakCore
	}
	type key struct {
		pid     int
		program uint64
		kind    event.StaticKind
		stack   uint64
		before  bool
	}
	index := make(map[key]int)
	var list []memory.PeakProgram
	var unions []cores.Union // of each of the list
	for i := range entries {
		e := &entries[i]
		if !e.place.Set.Has(core) {
			continue
		}
		k := key{e.pid, e.program, e.kind, memory.StackID(e.from.stack), e.from.beforeAttach}
		at, ok := index[k]
		if !ok {
			at = len(list)
			index[k] = at
			list = append(list, memory.PeakProgram{
				PID: e.pid, ProgramID: e.program, Kind: e.kind, Stack: e.from.stack, BeforeAttach: e.from.beforeAttach,
			})
			unions = append(unions, cores.Union{})
		}
		list[at].Count++
		unions[at].Add(e.place.Start, e.place.End)
	}
	for i := range list {
		list[i].Bytes = unions[i].Bytes()
	}
	slices.SortFunc(list, func(a, b memory.PeakProgram) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID), cmp.Compare(a.ProgramID, b.ProgramID),
			cmp.Compare(a.Kind, b.Kind), compareStacks(a.Stack, b.Stack), memory.CompareBools(a.BeforeAttach, b.BeforeAttach))
	})
	return list
}

// staticsAt returns the circular buffers that were live at the peak.
func (s *State) staticsAt(q *pool) []endedStatic {
	list := slices.Clone(q.ended)
	for _, process := range s.byPID() {
		c := process.chips[q.chip.id]
		if c == nil {
			continue
		}
		for _, id := range sortedKeys(c.programs) {
			for _, entry := range c.programs[id].static {
				if q.had(&entry) {
					list = append(list, endedStatic{process.pid, id, entry})
				}
			}
		}
	}
	return slices.DeleteFunc(list, func(e endedStatic) bool { return e.place.Start == e.place.End })
}
