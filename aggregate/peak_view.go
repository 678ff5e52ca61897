package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// A RegionPeak is one region of one chip when it was fullest. All in bytes of the
// region: those of L1 are per core.
type RegionPeak struct {
	Device int
	Region event.Region
	// TimeNs is the first moment at which there were that many Bytes; 0 where there
	// was never anything.
	TimeNs, Bytes uint64
	// CapacityBytes is what the region could hold then, or can now where that was not
	// known yet; 0 where it is not known.
	CapacityBytes uint64
	// StaticBytes is the part that circular and dataflow buffers took, which Programs
	// shared, and the rest is the sum of the Holders. In L1 alone.
	StaticBytes uint64
	// Holders are in order of bytes, most first, and so are Programs.
	Holders  []PeakHolder
	Programs []PeakProgram
	// Earlier is a higher peak than that before the events began, of which there is no
	// more than a checkpoint tells; nil where there is none.
	Earlier *EarlierPeak
	// Timeline is of what Bytes counts, and StaticTimeline of StaticBytes.
	Timeline, StaticTimeline *Timeline
}

// A PeakHolder is what one call stack of a process had at a peak.
type PeakHolder struct {
	PID   int
	Stack *event.Stack // nil where that is not known
	// Devices are all the chips that the buffers are on. They must not be modified.
	Devices      []int
	Layout       event.Layout
	BeforeAttach bool
	// Count is how many buffers there were, and Bytes what they took.
	Count, Bytes uint64
}

// A PeakProgram is what one call stack had placed for a program at a peak, on the core
// where all circular buffers together took most. Programs use the same space one after
// the other, so that their bytes do not add up.
type PeakProgram struct {
	PID          int
	ProgramID    uint64
	Kind         event.StaticKind
	Stack        *event.Stack // nil where that is not known
	BeforeAttach bool
	Count, Bytes uint64
}

// An EarlierPeak is one of which nothing is known but this.
type EarlierPeak struct{ TimeNs, Bytes, CapacityBytes uint64 }

// Begin is when the timelines begin. restored is true where the events began with a
// checkpoint: then it is the moment of that.
func (p *Peaks) Begin() (ns uint64, restored bool) { return p.begin, p.restored }

// RegionPeaks returns the peaks of all regions that ever held anything, in order of
// chip and region. The timelines go on as the events do.
func (p *Peaks) RegionPeaks() []RegionPeak {
	holders := p.peakHolders()
	earlier := p.earlier()
	var list []RegionPeak
	for _, id := range sortedKeys(p.chips) {
		for region := range event.Region(event.BankedRegions) {
			q := &p.chips[id].pools[region]
			lines := p.linesOf(q)
			peak := p.peakOf(q, holders[q])
			if lines.before != nil {
				peak = *lines.before
			}
			peak.CapacityBytes = cmp.Or(peak.CapacityBytes, q.holds())
			peak.Timeline, peak.StaticTimeline = lines.line, lines.static
			if before := earlier[regionOf{id, region}]; p.restored && before.Bytes > peak.Bytes {
				peak.Earlier = &before
			}
			if peak.Bytes > 0 || peak.Earlier != nil {
				list = append(list, peak)
			}
		}
	}
	return list
}

// peakOf is the peak of a pool, of which the capacity is 0 where it was not known then,
// without its timelines.
func (s *State) peakOf(q *pool, holders []PeakHolder) RegionPeak {
	peak := RegionPeak{
		Device: q.chip.id, Region: q.region, TimeNs: q.peakTime, Bytes: q.peak, CapacityBytes: q.capacity,
		StaticBytes: q.peakStatic, Holders: holders,
	}
	if q.region == event.L1 && q.peak > 0 {
		peak.Programs = s.programsAt(q)
	}
	return peak
}

// peakHolders are the buffers of each peak, by call site.
func (s *State) peakHolders() map[*pool][]PeakHolder {
	holders := make(map[*pool][]PeakHolder)
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
			holders[q] = append(holders[q], PeakHolder{
				PID: c.process.pid, Stack: c.stack, Devices: slices.Clip(c.set.ids), Layout: c.layout,
				BeforeAttach: c.before, Count: at.Count, Bytes: bytes,
			})
		}
	}
	for _, list := range holders {
		slices.SortFunc(list, func(a, b PeakHolder) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID), compareStacks(a.Stack, b.Stack),
				cmp.Compare(a.Layout, b.Layout), slices.Compare(a.Devices, b.Devices), cmp.Compare(b.Count, a.Count),
				compareBools(a.BeforeAttach, b.BeforeAttach))
		})
	}
	return holders
}

// compareStacks orders stacks in a way that is the same on all chips.
func compareStacks(a, b *event.Stack) int { return cmp.Compare(stackID(a), stackID(b)) }

type regionOf struct {
	device int
	region event.Region
}

// earlier are the highest peaks that the state knows: of a chip, or of one of its
// processes, as those of all are not told to everybody.
func (p *Peaks) earlier() map[regionOf]EarlierPeak {
	peaks := make(map[regionOf]EarlierPeak)
	note := func(devices []Device) {
		for i := range devices {
			d := &devices[i]
			for region := range event.Region(event.BankedRegions) {
				r := d.Regions.Banked(region)
				peak := EarlierPeak{r.PeakTimeNs, r.PeakBytes, r.PeakCapacityBytes}
				if l1 := &d.L1PerCore; region == event.L1 {
					peak = EarlierPeak{l1.Peak.TimeNs, l1.Peak.BufferBytes + l1.Peak.CBBytes, l1.CapacityBytes}
				}
				if at := (regionOf{d.ID, region}); peak.Bytes > peaks[at].Bytes {
					peaks[at] = peak
				}
			}
		}
	}
	snap := p.Snapshot()
	note(snap.Devices)
	for i := range snap.Processes {
		note(snap.Processes[i].Devices)
	}
	return peaks
}

// programsAt are the programs at the peak of the L1 of a chip.
func (s *State) programsAt(q *pool) []PeakProgram {
	entries := s.staticsAt(q)
	var usage cores.Usage
	for i := range entries {
		usage.Add(entries[i].place)
	}
	core, found := usage.Fullest()
	if !found {
		return nil
	}
	type key struct {
		pid     int
		program uint64
		kind    event.StaticKind
		stack   uint64
		before  bool
	}
	index := make(map[key]int)
	var list []PeakProgram
	var unions []cores.Union // of each of the list
	for i := range entries {
		e := &entries[i]
		if !e.place.Set.Has(core) {
			continue
		}
		k := key{e.pid, e.program, e.kind, 0, e.from.beforeAttach}
		if e.from.stack != nil {
			k.stack = e.from.stack.ID
		}
		at, ok := index[k]
		if !ok {
			at = len(list)
			index[k] = at
			list = append(list, PeakProgram{
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
	slices.SortFunc(list, func(a, b PeakProgram) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID), cmp.Compare(a.ProgramID, b.ProgramID),
			cmp.Compare(a.Kind, b.Kind), compareStacks(a.Stack, b.Stack), compareBools(a.BeforeAttach, b.BeforeAttach))
	})
	return list
}

// staticsAt are the circular buffers that were there at the peak.
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
