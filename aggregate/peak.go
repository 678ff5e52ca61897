package aggregate

import (
	"ttmem/tracer/event"
)

// Peaks are a State, and what each region of each chip was made of when it was
// fullest, with how it went up and down. They are exact, of one pass over the events,
// and keep what lives and what is part of a peak: not what is over. They are not safe
// for use by several goroutines at once.
//
// The bytes of a region are those that its buffers take of all its banks. Those of L1
// are per core: what buffers take of each core, and on top what circular and dataflow
// buffers take of the core where that is most (L1PerCore.Peak).
type Peaks struct {
	*State
	begin uint64
	// restored is true where the events began with a checkpoint, after which begin is.
	restored bool
	pools    map[*chip]*[event.BankedRegions]*peakPool
	sites    map[peakKey]*peakSite
	// early are the processes that ran already when the events began.
	early map[int]bool
	// kept is how many sites there were when the rest was last forgotten.
	kept int
}

// A peakPool is one region of a chip.
type peakPool struct {
	// pool.bytes has the static bytes too.
	pool
	chip   *chip
	region event.Region
	// static is what circular buffers take now of the core where it is most, and
	// peakStatic what they took at the peak. In L1 alone.
	static, peakStatic uint64
	// capacity is what the region could hold at the peak.
	capacity uint64
	// ended are the circular buffers that were there at the peak and are not now.
	ended []endedStatic
	// level is what was there when it last fit: line is of that, and staticLine of what
	// is static of it.
	level            l1Level
	line, staticLine *Timeline
	// before is the peak where it was before these events: nil where it was not.
	before *RegionPeak
	// changed is true where anything happened but that what was there before the events
	// began was told.
	changed bool
}

type endedStatic struct {
	pid     int
	program uint64
	staticEntry
}

// A peakKey tells apart what is allocated.
type peakKey struct {
	stack  uint64
	set    *deviceSet // of one process
	region event.Region
	layout event.Layout
	before bool
}

// A peakSite is what has one key, with a tally for each chip of the set.
type peakSite struct {
	stack   *event.Stack
	tallies []peakTally
}

type peakTally struct {
	tally
	of *peakPool
}

// NewPeaks returns Peaks of a new State.
func NewPeaks() *Peaks {
	return &Peaks{
		State: New(),
		pools: make(map[*chip]*[event.BankedRegions]*peakPool),
		sites: make(map[peakKey]*peakSite),
		early: make(map[int]bool),
	}
}

// earlyNs is how long after the first event those processes are met that ran already.
const earlyNs = 1e9

// Apply brings the state up to the event, after those that it implies. Where the
// events begin with a checkpoint, the peaks are those since then.
func (p *Peaks) Apply(e *event.Event) {
	for _, implied := range p.Implied(e) {
		p.apply(&implied)
	}
	p.apply(e)
}

func (p *Peaks) apply(e *event.Event) {
	if p.begin == 0 {
		p.begin = e.TimeNs
	}
	switch e.Kind {
	case event.Alloc:
		p.remove(e) // its free was lost
		p.State.Apply(e)
		p.add(e)
	case event.Free:
		p.remove(e)
		p.State.Apply(e)
	case event.CBAlloc:
		p.State.Apply(e)
		p.noteStatics(e)
	case event.CBFree:
		p.keepEnded(e)
		p.State.Apply(e)
		p.noteStatics(e)
	case event.Total:
		p.State.Apply(e)
		// A checkpoint ends with totals that are of no process.
		if e.PID == 0 && !p.restored {
			p.restart(e.TimeNs)
		}
	case event.ProcessStart:
		p.State.Apply(e)
		if e.AttachedLate && !p.restored && e.TimeNs-min(e.TimeNs, p.begin) <= earlyNs {
			p.early[e.PID] = true
		} else {
			delete(p.early, e.PID)
		}
	default:
		p.State.Apply(e)
	}
}

// restart makes what is allocated now the peaks, and the time the beginning.
func (p *Peaks) restart(now uint64) {
	p.restored, p.begin = true, now
	for _, regions := range p.pools {
		for _, q := range regions {
			if q != nil {
				q.restart(now)
			}
		}
	}
}

func (q *peakPool) restart(now uint64) {
	q.limit()
	q.reach(now)
	if !q.fits() {
		q.peak = 0
	}
	q.note(true)
	q.line = newTimeline(now, q.level.all)
	q.staticLine = newTimeline(now, q.level.static)
}

// limit has pool.most be what L1 holds by now. Of other regions no more than they hold is
// told.
func (q *peakPool) limit() {
	if q.region == event.L1 {
		q.most = q.holds()
	}
}

// note is to be called after each change.
func (q *peakPool) note(grew bool) {
	q.limit()
	q.level.note(q.bytes, q.static, q.most, grew)
}

// pool returns the one of a region of a chip, which it makes where there is none yet.
func (p *Peaks) pool(c *chip, region event.Region) *peakPool {
	regions := p.pools[c]
	if regions == nil {
		regions = &[event.BankedRegions]*peakPool{}
		p.pools[c] = regions
	}
	if regions[region] == nil {
		regions[region] = &peakPool{
			chip: c, region: region, line: newTimeline(p.begin, 0), staticLine: newTimeline(p.begin, 0),
		}
	}
	return regions[region]
}

// reach makes what there is now the peak.
func (q *peakPool) reach(now uint64) {
	q.peak, q.peakTime = q.bytes, now
	q.peaks++
	q.reached()
}

// reached is to be called after each new peak.
func (q *peakPool) reached() {
	q.peakStatic, q.capacity = q.static, q.holds()
	clear(q.ended)
	q.ended = q.ended[:0]
}

// holds is what the region can hold now, in bytes as they are counted; 0 where that is
// not known.
func (q *peakPool) holds() uint64 {
	c := q.chip.capacities[q.region]
	if q.region == event.L1 {
		return c.BytesPerBank
	}
	return total(c)
}

// counts is what a buffer counts in this region.
func (q *peakPool) counts(b *buffer) uint64 {
	if q.region == event.L1 {
		return b.perBank
	}
	return b.allocated()
}

// add counts the buffer that the event has allocated.
func (p *Peaks) add(e *event.Event) {
	b := p.bufferOf(e.PID, e.BufferID)
	if b == nil {
		return
	}
	s := p.site(b)
	for i := range s.tallies {
		t := &s.tallies[i]
		peaks := t.of.peaks
		t.of.limit()
		t.add(t.of.counts(b), e.TimeNs)
		if t.of.peaks != peaks {
			t.of.reached()
		}
		t.of.note(true)
		p.draw(t.of, e)
	}
}

// remove takes off the buffer that ends with the event, where there is one.
func (p *Peaks) remove(e *event.Event) {
	b := p.bufferOf(e.PID, e.BufferID)
	if b == nil {
		return
	}
	s := p.site(b)
	for i := range s.tallies {
		t := &s.tallies[i]
		t.remove(t.of.counts(b), event.ReasonExplicit)
		t.of.note(false)
		p.draw(t.of, e)
	}
}

func (p *Peaks) site(b *buffer) *peakSite {
	key := peakKey{set: b.set, region: b.region, layout: b.layout, before: b.beforeAttach}
	if b.stack != nil {
		key.stack = b.stack.ID
	}
	s := p.sites[key]
	if s == nil {
		p.sweep()
		s = &peakSite{stack: b.stack, tallies: make([]peakTally, len(b.set.chips))}
		for i, c := range b.set.chips {
			q := p.pool(c.chip, b.region)
			s.tallies[i] = peakTally{tally{pool: &q.pool}, q}
		}
		p.sites[key] = s
	}
	return s
}

// keptSites is how many sites are kept at least, as most will hold something again.
const keptSites = 1024

// sweep forgets the sites that hold nothing and are part of no peak, each time that
// there are twice as many as were left.
func (p *Peaks) sweep() {
	if len(p.sites) < 2*max(p.kept, keptSites) {
		return
	}
	for key, s := range p.sites {
		if !s.matters() {
			delete(p.sites, key)
		}
	}
	p.kept = len(p.sites)
}

func (s *peakSite) matters() bool {
	for i := range s.tallies {
		if t := &s.tallies[i]; t.current.Count > 0 || t.atPeak().Count > 0 {
			return true
		}
	}
	return false
}

// keepEnded keeps the circular buffers that end with the event and were there at the
// peak.
func (p *Peaks) keepEnded(e *event.Event) {
	process := p.known(e.PID)
	if process == nil {
		return
	}
	for _, c := range process.touched(e) {
		g := c.programs[e.ProgramID]
		if g == nil {
			continue
		}
		q := p.pool(c.chip, event.L1)
		for _, entry := range g.static {
			ends := e.StaticKind == event.NotStatic || kindOfFree(entry.kind) == e.StaticKind
			if ends && q.had(&entry) {
				q.ended = append(q.ended, endedStatic{e.PID, e.ProgramID, entry})
			}
		}
	}
}

// had reports whether a circular buffer that is there now was there at the peak.
func (q *peakPool) had(entry *staticEntry) bool {
	return !entry.global && entry.from.since <= q.peakTime
}

// noteStatics counts what circular buffers take of the chips of the event by now.
func (p *Peaks) noteStatics(e *event.Event) {
	process := p.known(e.PID)
	if process == nil {
		return
	}
	for _, c := range process.touched(e) {
		q := p.pool(c.chip, event.L1)
		q.bytes -= q.static
		q.static = c.chip.used.static.cores.max
		q.bytes += q.static
		q.note(e.Kind == event.CBAlloc)
		if q.bytes > q.peak && q.fits() && e.Kind == event.CBAlloc {
			q.reach(e.TimeNs)
		}
		p.draw(q, e)
	}
}

// draw notes in the timelines what the event has made of a pool. What was there before
// the events began has been there from their beginning on, though it is told later.
func (p *Peaks) draw(q *peakPool, e *event.Event) {
	if q.changed = q.changed || !e.BeforeAttach || !p.early[e.PID]; !q.changed {
		q.line, q.staticLine = newTimeline(p.begin, q.level.all), newTimeline(p.begin, q.level.static)
		return
	}
	q.line.set(e.TimeNs, q.level.all)
	if q.region == event.L1 {
		q.staticLine.set(e.TimeNs, q.level.static)
	}
}
