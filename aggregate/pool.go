package aggregate

import (
	"ttmem/aggregate/cores"
	"ttmem/aggregate/timeline"
	"ttmem/tracer/event"
)

// A pool is one region of one chip, with its peak and its use over time. This is the only
// definition of a peak:
//
//   - of L1 the bytes are per core: what buffers in all banks occupy of each core, plus what
//     buffers on single cores, circular and dataflow buffers occupy of the core where that
//     is highest;
//   - of other regions they are what buffers occupy of all banks;
//   - the peak is the first moment at which the bytes were highest and fit.
type pool struct {
	chip   *chip
	region event.Region
	// bytes is the present use, and static the part of circular buffers.
	bytes, static uint64
	// top is the part of bytes that differs between cores, and core is the core where it is
	// highest. peakCore is the same at the peak.
	top            uint64
	core, peakCore cores.Core
	// peak is the highest peak since the state's first event, and earlier the highest one
	// before that, from a checkpoint.
	peak, earlier peak
	// ofAllUsers is true if earlier includes the memory of users of whom the state has
	// nothing else.
	ofAllUsers bool
	// serial is the number of new peaks so far.
	serial uint64
	// ended are the circular buffers that were live at the peak and are not now.
	ended []endedStatic
	// level and levelStatic are bytes and static when they last fit, less what was freed
	// since: the library assigns the addresses of a program's circular buffers before it
	// checks whether they overlap a tensor. Those that do are never used.
	level, levelStatic uint64
	// line is how level changed over time, and staticLine how levelStatic did, in L1 alone.
	line, staticLine timeline.Timeline
	// drawn is true after the first change that did not report an allocation from before the
	// first event.
	drawn bool
}

// A peak is the highest use of a region, at a time when static was the part of circular
// buffers and capacity that of the region; 0 if that was not known. number is that of the
// event: see Point.
type peak struct{ bytes, static, time, capacity, number uint64 }

// peaks are by region.
type peaks [event.BankedRegions]peak

// An endedStatic is a circular buffer that a program had.
type endedStatic struct {
	pid     int
	program uint64
	staticEntry
}

// initPools makes the pools empty. Their timelines begin at a time.
func (c *chip) initPools(begin uint64) {
	for region := range c.pools {
		q := &c.pools[region]
		q.chip, q.region = c, event.Region(region)
		q.line.BeginNs, q.staticLine.BeginNs = begin, begin
	}
}

// holds returns the present capacity in bytes, as a pool counts them; 0 if it is not known.
func (q *pool) holds() uint64 {
	if q.region == event.L1 {
		return q.chip.capacities[event.L1].BytesPerBank
	}
	return total(q.chip.capacities[q.region])
}

// fits reports whether the present use is within the capacity. Only L1 can exceed it.
func (q *pool) fits() bool {
	if q.region != event.L1 {
		return true
	}
	most := q.holds()
	return most == 0 || q.bytes <= most
}

// grew updates the peak; call it after an allocation. found is true for what was discovered
// in the memory of a process that was running at the first event: it was live since then.
// number is that of the event.
func (q *pool) grew(now, number uint64, found bool) {
	if q.fits() {
		if q.bytes > q.peak.bytes {
			q.reach(now, number)
		}
		q.level, q.levelStatic = q.bytes, q.static
	}
	q.draw(now, found)
}

// shrank updates the level; call it after something was freed. It sets no peak, even if the
// rest fits now: the next allocation does.
func (q *pool) shrank(now uint64) {
	if q.bytes <= q.level && q.fits() {
		q.level, q.levelStatic = q.bytes, q.static
	}
	q.draw(now, false)
}

// reach makes the present use the peak.
func (q *pool) reach(now, number uint64) {
	q.peak, q.peakCore = peak{q.bytes, q.static, now, q.holds(), number}, q.core
	q.serial++
	clear(q.ended)
	q.ended = q.ended[:0]
}

// draw adds the present level to the timelines.
func (q *pool) draw(now uint64, found bool) {
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

// restart makes the present use the peak.
func (q *pool) restart(now, number uint64) {
	q.reach(now, number)
	if !q.fits() {
		q.peak = peak{time: now, number: number}
	}
}

// redraw makes the present level the beginning of the timelines.
func (q *pool) redraw(now uint64) {
	q.line.Restart(now, q.level)
	q.staticLine.Restart(now, q.levelStatic)
	q.drawn = false
}

// highest returns the highest known peak.
func (q *pool) highest() peak {
	if q.earlier.bytes >= q.peak.bytes {
		return q.earlier
	}
	return q.peak
}

// setTop sets what circular buffers and buffers on single cores occupy of the core where
// that is highest.
func (q *pool) setTop(top cores.Top) {
	q.bytes += top.Bytes - q.top
	q.top, q.static, q.core = top.Bytes, top.Static, top.Core
}

// had reports whether a circular buffer that is live now was live at the peak.
func (q *pool) had(entry *staticEntry) bool {
	return !entry.global && entry.from.since <= q.peak.time
}

// allPools returns the pools of all chips, in order of chip and region: first those of buffers
// on no known chip.
func (s *State) allPools() (list []*pool) {
	for _, c := range append([]*chip{s.unplaced}, s.byID()...) {
		for region := range c.pools {
			list = append(list, &c.pools[region])
		}
	}
	return list
}
