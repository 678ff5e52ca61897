package aggregate

import (
	"ttmem/tracer/event"
)

// Peaks are a State, with how each region of each chip went up and down. They are not safe
// for use by several goroutines at once.
type Peaks struct {
	*State
	begin uint64
	// restored is true where the events began with a checkpoint, after which begin is.
	restored bool
	lines    map[*pool]*regionLines
	// early are the processes that ran already when the events began.
	early map[int]bool
}

// regionLines are the timelines of a region of a chip.
type regionLines struct {
	// line is of what is in use, and static of the part that circular buffers take.
	line, static *Timeline
	// before is the peak where it was before these events: nil where it was not.
	before *RegionPeak
	// changed is true where anything happened but that what was there before the events
	// began was reported.
	changed bool
}

// NewPeaks returns Peaks of a new State.
func NewPeaks() *Peaks {
	return &Peaks{State: New(), lines: make(map[*pool]*regionLines), early: make(map[int]bool)}
}

// earlyNs is how long after the first event those processes are seen that ran already.
const earlyNs = 1e9

// Apply brings the state up to the event, after those that it implies. Where the
// events begin with a checkpoint, the peaks are those since then.
func (p *Peaks) Apply(e *event.Event) {
	for implied := p.Implied(e); implied.Next(); {
		p.apply(implied.Event())
	}
	p.apply(e)
}

func (p *Peaks) apply(e *event.Event) {
	if p.begin == 0 {
		p.begin = e.TimeNs
	}
	switch e.Kind {
	case event.Alloc:
		old := p.bufferOf(e.PID, e.BufferID)
		p.State.Apply(e)
		if old != nil { // its free was lost
			p.draw(e, old.set, old.region)
		}
		if b := p.bufferOf(e.PID, e.BufferID); b != nil {
			p.draw(e, b.set, b.region)
		}
	case event.Free:
		b := p.bufferOf(e.PID, e.BufferID)
		p.State.Apply(e)
		if b != nil {
			p.draw(e, b.set, b.region)
		}
	case event.CBAlloc, event.CBFree:
		p.State.Apply(e)
		if process := p.known(e.PID); process != nil {
			for _, c := range process.touched(e) {
				p.drawPool(e, &c.chip.pools[event.L1])
			}
		}
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
	for _, c := range p.chips {
		for region := range c.pools {
			q := &c.pools[region]
			q.restart(now)
			level, static := q.level()
			p.lines[q] = &regionLines{line: newTimeline(now, level), static: newTimeline(now, static)}
		}
	}
}

// linesOf are those of a pool, which it makes where there are none yet.
func (p *Peaks) linesOf(q *pool) *regionLines {
	l := p.lines[q]
	if l == nil {
		l = &regionLines{line: newTimeline(p.begin, 0), static: newTimeline(p.begin, 0)}
		p.lines[q] = l
	}
	return l
}

// level is what a timeline shows, and the part of it that circular buffers take: what
// there is, or was when it last fit.
func (q *pool) level() (bytes, static uint64) {
	if q.region == event.L1 {
		static = q.chip.l1.static
	}
	return q.chip.level(q.region), static
}

// draw adds what the event has made of a region of some chips to the timelines.
func (p *Peaks) draw(e *event.Event, set *deviceSet, region event.Region) {
	if len(set.chips) == 0 {
		return
	}
	for _, q := range set.poolsOf(region) {
		p.drawPool(e, q)
	}
}

// drawPool does so for one pool. What was there before the events began has been there
// from their beginning on, though it is reported later.
func (p *Peaks) drawPool(e *event.Event, q *pool) {
	l := p.linesOf(q)
	level, static := q.level()
	if l.changed = l.changed || !e.BeforeAttach || !p.early[e.PID]; !l.changed {
		l.line, l.static = newTimeline(p.begin, level), newTimeline(p.begin, static)
		return
	}
	l.line.set(e.TimeNs, level)
	if q.region == event.L1 {
		l.static.set(e.TimeNs, static)
	}
}
