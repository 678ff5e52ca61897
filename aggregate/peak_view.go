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
	for _, q := range s.allPools() {
		if q.chip != s.unplaced && q.Highest().Bytes > 0 {
			list = append(list, memory.RegionTimeline{
				Device: q.chip.id, Region: q.Region, Timeline: q.Line.Clone(), Static: q.StaticLine.Clone(),
			})
		}
	}
	return list
}

// Level returns the present values of the timelines of a region of a chip: the bytes in use, and
// the part of circular buffers.
func (s *State) Level(device int, region event.Region) (bytes, static uint64) {
	c := s.chips[device]
	if c == nil || int(region) >= event.BankedRegions {
		return 0, 0
	}
	return c.pools[region].Level()
}

// RegionPeaks returns the peaks of all regions that were ever used, in order of
// chip and region.
func (s *State) RegionPeaks() []memory.RegionPeak {
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
		Device: q.chip.id, Region: q.Region, TimeNs: q.Peak.TimeNs, Bytes: q.Peak.Bytes,
		CapacityBytes: cmp.Or(q.Peak.Capacity, q.Capacity()), StaticBytes: q.Peak.Static, Holders: holders,
		Timeline: q.Line.Clone(), StaticTimeline: q.StaticLine.Clone(),
	}
	var covered uint64
	if q.Peak.Static > 0 {
		view.Programs, covered = s.programsAt(q)
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

// programsAt returns the programs at the peak of the L1 of a chip, and how much of the core their
// circular buffers occupied.
func (s *State) programsAt(q *pool) (list []memory.PeakProgram, covered uint64) {
	entries := s.staticsAt(q)
	core, covered := q.coreAtPeak(entries)
	type key struct {
		pid     int
		program uint64
		kind    event.StaticKind
		stack   uint64
		before  bool
	}
	index := make(map[key]int)
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
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(memory.StackID(a.Stack), memory.StackID(b.Stack)), memory.CompareBools(a.BeforeAttach, b.BeforeAttach))
	})
	return list, covered
}

// coreAtPeak returns the core that was fullest at the peak, and how much of it these circular
// buffers occupied.
func (q *pool) coreAtPeak(entries []programStatic) (core cores.Core, covered uint64) {
	var usage cores.Usage
	for i := range entries {
		usage.Add(entries[i].place)
	}
	core = q.PeakCore
	if usage.On(core) != q.Peak.Static && usage.Max() == q.Peak.Static { // without buffers on single cores
		core, _ = usage.Fullest()
	}
	return core, usage.On(core)
}

// staticsAt returns the circular buffers that were live at the peak.
func (s *State) staticsAt(q *pool) []programStatic {
	list := slices.Clone(q.endedSincePeak())
	for e := range s.staticsOn(q.chip.id) {
		if q.had(&e.staticEntry) {
			list = append(list, e)
		}
	}
	return slices.DeleteFunc(list, func(e programStatic) bool { return e.place.Start == e.place.End })
}
