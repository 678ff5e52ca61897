package aggregate

import (
	"ttmem/aggregate/timeline"
	"ttmem/tracer/event"
)

// A pool is one region of one chip, with the moment at which it was fullest and how it
// filled over time. There is no other definition of a peak:
//
//   - of L1 the bytes are per core: what buffers take of each core and, on top, what
//     circular and dataflow buffers take of the core where that is most;
//   - of the others they are what buffers take of all banks;
//   - the peak is the first moment at which there were most of them, and they fit.
type pool struct {
	chip   *chip // nil: of buffers on no known chip
	region event.Region
	// bytes is what counts now, and static the part that circular buffers take.
	bytes, static uint64
	// peak is the highest since the state's first event, and earlier the highest before
	// that, as far as a checkpoint says.
	peak, earlier peak
	// serial is how often there was a new peak.
	serial uint64
	// ended are the circular buffers that were there at the peak and are not now.
	ended []endedStatic
	// level and levelStatic are bytes and static when they last fit, less what was freed
	// since: the library places the circular buffers of a program before it looks whether
	// they overlap a tensor, and those that do were never there.
	level, levelStatic uint64
	// line is how level changed over time, and staticLine how levelStatic did, in L1 alone.
	line, staticLine timeline.Timeline
	// drawn is true where something changed besides the reports of what was there before
	// the first event.
	drawn bool
}

// A peak is the most bytes that there were of a region, at a time when circular buffers
// took the part static and the region could hold capacity; 0 where that was not known.
// number is how many events there were by then.
type peak struct{ bytes, static, time, capacity, number uint64 }

// raise takes over another peak if it is higher.
func (p *peak) raise(other peak) {
	if other.bytes > p.bytes {
		*p = other
	}
}

// peaks are by region.
type peaks [event.BankedRegions]peak

// An endedStatic is a circular buffer that a program had.
type endedStatic struct {
	pid     int
	program uint64
	staticEntry
}

// newPools are those of a chip, whose timelines begin at a time.
func newPools(c *chip, begin uint64) (pools [event.BankedRegions]pool) {
	for region := range pools {
		q := &pools[region]
		q.chip, q.region = c, event.Region(region)
		q.line.BeginNs, q.staticLine.BeginNs = begin, begin
	}
	return pools
}

// holds is what the region can hold now, in bytes as they are counted; 0 where that is
// not known.
func (q *pool) holds() uint64 {
	switch {
	case q.chip == nil:
		return 0
	case q.region == event.L1:
		return q.chip.capacities[event.L1].BytesPerBank
	}
	return total(q.chip.capacities[q.region])
}

// fits reports whether what there is can be there. Of other regions than L1 no more than
// they hold is ever reported.
func (q *pool) fits() bool {
	if q.region != event.L1 {
		return true
	}
	most := q.holds()
	return most == 0 || q.bytes <= most
}

// grew is to be called after something was allocated at a time. found is true for what was
// found in the memory of a process that was running at the first event: it has been there
// since then. number is how many events there were.
func (q *pool) grew(now, number uint64, found bool) {
	if q.fits() {
		if q.bytes > q.peak.bytes {
			q.reach(now, number)
		}
		q.level, q.levelStatic = q.bytes, q.static
	}
	q.draw(now, found)
}

// shrank is to be called after something was freed at a time. What comes to fit by that is
// known to fit when something is allocated.
func (q *pool) shrank(now uint64) {
	if q.bytes <= q.level && q.fits() {
		q.level, q.levelStatic = q.bytes, q.static
	}
	q.draw(now, false)
}

// reach makes what there is now the peak.
func (q *pool) reach(now, number uint64) {
	q.peak = peak{q.bytes, q.static, now, q.holds(), number}
	q.serial++
	clear(q.ended)
	q.ended = q.ended[:0]
}

// draw adds the present level to the timelines.
func (q *pool) draw(now uint64, found bool) {
	if q.chip == nil {
		return
	}
	if q.drawn = q.drawn || !found; !q.drawn {
		q.line.Restart(q.line.BeginNs, q.level)
		q.staticLine.Restart(q.staticLine.BeginNs, q.levelStatic)
		return
	}
	q.line.Set(now, q.level)
	if q.region == event.L1 {
		q.staticLine.Set(now, q.levelStatic)
	}
}

// restart forgets the peak and the timelines: what there is now begins new ones.
func (q *pool) restart(now, number uint64) {
	q.reach(now, number)
	if !q.fits() {
		q.peak = peak{time: now, number: number}
	}
	q.line.Restart(now, q.level)
	q.staticLine.Restart(now, q.levelStatic)
	q.drawn = false
}

// highest is the highest peak that is known.
func (q *pool) highest() peak {
	if q.earlier.bytes >= q.peak.bytes {
		return q.earlier
	}
	return q.peak
}

// setStatic takes over what circular buffers take now of the core where that is most.
func (q *pool) setStatic(static uint64) {
	q.bytes += static - q.static
	q.static = static
}

// had reports whether a circular buffer that is there now was there at the peak.
func (q *pool) had(entry *staticEntry) bool {
	return !entry.global && entry.from.since <= q.peak.time
}

// PeakOf is the peak of a region of a chip by now; zero where there was nothing.
func (s *State) PeakOf(device int, region event.Region) Peak {
	if c := s.chips[device]; c != nil && int(region) < event.BankedRegions {
		p := &c.pools[region].peak
		return Peak{device, region, p.bytes, p.time}
	}
	return Peak{}
}

// device is the id of the pool's chip.
func (q *pool) device() int {
	if q.chip == nil {
		return NoDevice
	}
	return q.chip.id
}

// allPools are those of all chips, in order of chip and region.
func (s *State) allPools() (list []*pool) {
	for region := range s.unplaced {
		list = append(list, &s.unplaced[region])
	}
	for _, id := range sortedKeys(s.chips) {
		for region := range s.chips[id].pools {
			list = append(list, &s.chips[id].pools[region])
		}
	}
	return list
}
