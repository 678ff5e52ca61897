// Package peak follows the use of one region of one chip: its peak, and its use over time.
package peak

import (
	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A Peak is the highest use of a region. Static is the part of circular buffers at that time.
// Capacity was the capacity of the region; 0 if it was not known. Number is the number of the
// event: see memory.Point.
type Peak struct{ Bytes, Static, TimeNs, Capacity, Number uint64 }

// Peaks are by region.
type Peaks [event.BankedRegions]Peak

// Code writes or reads the peak.
func (p *Peak) Code(c *codec.Codec) {
	c.Uints(&p.Bytes, &p.Static, &p.TimeNs, &p.Capacity, &p.Number)
}

// A Pool is one region of one chip, with its peak and its use over time. This is the only
// definition of a peak:
//
//   - For L1, Bytes is the use per core: buffers in all banks, plus, on the core where these
//     are highest, buffers on single cores, circular and dataflow buffers.
//   - For other regions, Bytes is the use of all banks.
//   - The peak is the first moment at which Bytes was highest and fit.
type Pool struct {
	Region event.Region
	// capacity is the present capacity of the region.
	capacity *event.Capacity
	// Bytes is the present use, and static the part of circular buffers.
	Bytes, static uint64
	// top is the part of Bytes that differs between cores, and core the core with the highest.
	// PeakCore was this core at the peak.
	top            uint64
	core, PeakCore cores.Core
	// Peak is the highest peak since the first event, and Earlier the highest one before that,
	// from a checkpoint.
	Peak, Earlier Peak
	// Shared is true if Bytes and Peak include the memory of users whose buffers are not known.
	Shared bool
	// Serial is the number of new peaks so far.
	Serial uint64
	// level and levelStatic are Bytes and static when they last fit, minus the bytes freed since.
	// The library assigns the addresses of a program's circular buffers before it checks whether
	// they overlap a tensor. If they do, the program never uses them.
	level, levelStatic uint64
	// Line is the history of level, and StaticLine the history of levelStatic, in L1 only.
	Line, StaticLine memory.Timeline
	// drawn is true from the first change that is not an allocation from before the first event.
	drawn bool
}

// New returns an empty pool whose timelines begin at a time. capacity is the present one.
func New(region event.Region, capacity *event.Capacity, begin uint64) Pool {
	q := Pool{Region: region, capacity: capacity}
	q.Line.BeginNs, q.StaticLine.BeginNs = begin, begin
	return q
}

// Capacity returns a capacity in bytes, as the pool of the region counts them; 0 if it is not known.
func Capacity(region event.Region, c *event.Capacity) uint64 {
	if region == event.L1 {
		return c.BytesPerBank
	}
	return c.Total()
}

// Capacity returns the present capacity in bytes, as the pool counts them; 0 if it is not known.
func (q *Pool) Capacity() uint64 { return Capacity(q.Region, q.capacity) }

// Fits reports whether the present use is within the capacity. Only L1 can exceed it.
func (q *Pool) Fits() bool {
	if q.Region != event.L1 {
		return true
	}
	most := q.Capacity()
	return most == 0 || q.Bytes <= most
}

// Grew updates the peak; call it after an allocation. found is true for a buffer that was read
// from the memory of a process that was already running at the first event: the buffer was live
// since then. number is the number of the event.
func (q *Pool) Grew(now, number uint64, found bool) {
	if q.Fits() {
		if q.Bytes > q.Peak.Bytes {
			q.reach(now, number)
		}
		q.setLevel()
	}
	q.draw(now, found)
}

// Shrank updates the level; call it after a free. It sets no peak, even if the rest fits now; the
// next allocation does.
func (q *Pool) Shrank(now uint64) {
	if q.Bytes <= q.level && q.Fits() {
		q.setLevel()
	}
	q.draw(now, false)
}

// Level returns the present values of the timelines: the use, and the part of circular buffers.
func (q *Pool) Level() (bytes, static uint64) { return q.level, q.levelStatic }

// setLevel makes the present use the level that the timelines show.
func (q *Pool) setLevel() { q.level, q.levelStatic = q.Bytes, q.static }

// SetTop sets the bytes of circular buffers and buffers on single cores, on the core with the
// most.
func (q *Pool) SetTop(top cores.Top) {
	q.Bytes += top.Bytes - q.top
	q.top, q.static, q.core = top.Bytes, top.Static, top.Core
}

// reach makes the present use the peak.
func (q *Pool) reach(now, number uint64) {
	q.Peak, q.PeakCore = Peak{q.Bytes, q.static, now, q.Capacity(), number}, q.core
	q.Serial++
}

// draw adds the present level to the timelines.
func (q *Pool) draw(now uint64, found bool) {
	if q.drawn = q.drawn || !found; !q.drawn {
		q.RestartLines(q.Line.BeginNs)
		return
	}
	q.Line.Set(now, q.level)
	if q.Region == event.L1 {
		q.StaticLine.Set(now, q.levelStatic)
	}
}

// Restart makes the present use the peak, and the level that the timelines show.
func (q *Pool) Restart(now, number uint64) {
	q.reach(now, number)
	q.setLevel()
	if !q.Fits() {
		q.Peak = Peak{TimeNs: now, Number: number}
	}
}

// RestartLines makes the present level the beginning of the timelines.
func (q *Pool) RestartLines(now uint64) {
	q.Line.Restart(now, q.level)
	q.StaticLine.Restart(now, q.levelStatic)
}

// AddOthers adds the memory of the users whose buffers are not known to the present use of a shared
// region. Call it when all other buffers were counted.
func (q *Pool) AddOthers() {
	if q.Shared {
		q.Bytes = max(q.Bytes, q.level)
	}
}

// Redraw is RestartLines for a stream of events that begins now.
func (q *Pool) Redraw(now uint64) {
	q.RestartLines(now)
	q.drawn = false
}

// Highest returns the highest known peak.
func (q *Pool) Highest() Peak {
	if q.Earlier.Bytes >= q.Peak.Bytes {
		return q.Earlier
	}
	return q.Peak
}

// Code writes or reads the pool without its present use.
func (q *Pool) Code(c *codec.Codec) {
	q.Peak.Code(c)
	q.Earlier.Code(c)
	c.Bool(&q.Shared)
	c.Value(&q.PeakCore)
	c.Uints(&q.Serial, &q.level, &q.levelStatic)
	q.Line.Code(c)
	q.StaticLine.Code(c)
	c.Bool(&q.drawn)
}
