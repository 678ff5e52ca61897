// Package peak follows the use of one region of one chip: its peak, and its use over time.
package peak

import (
	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A Peak is the highest use of a region. Static is the part of the program that ran then.
// Capacity was the capacity of the region; 0 if it was not known. Number is the number of the
// event: see memory.Point.
type Peak struct{ Bytes, Static, TimeNs, Capacity, Number uint64 }

// Peaks are by region.
type Peaks [event.BankedRegions]Peak

// Code writes or reads the peak.
func (p *Peak) Code(c *codec.Codec) {
	c.Uints(&p.Bytes, &p.Static, &p.TimeNs, &p.Capacity, &p.Number)
	if p.Static > p.Bytes {
		c.Fail()
	}
}

// A Pool is one region of one chip, with its peak and its use over time. This is the only
// definition of a peak: it is the first of the samples with the most bytes.
//
//   - Each allocation is a sample: the buffers of all processes. For L1 these are the bytes per
//     core, in all banks and, where these are highest, on single cores. For other regions they
//     are the bytes of all banks.
//   - In L1, each run of a program is a sample, too: the buffers of all processes and the circular
//     buffers, dataflow buffers and scratchpads of this program, on the core where the sum is
//     highest. Between runs, those of cached programs take nothing.
type Pool struct {
	Region event.Region
	// capacity is the present capacity of the region.
	capacity *event.Capacity
	// Bytes is the present use by buffers.
	Bytes uint64
	// load is the part of Bytes on single cores, on the core with the most; PeakCore was the fullest
	// core at the peak.
	load           uint64
	core, PeakCore cores.Core
	// Peak is the highest peak since the first event, and Earlier the highest one before that,
	// from a checkpoint.
	Peak, Earlier Peak
	// Shared is true if Bytes and Peak include the memory of users whose buffers are not known. All
	// is Bytes with these, as a checkpoint has it.
	Shared bool
	all    uint64
	// AtLeast is true if programs may have run that were not reported.
	AtLeast bool
	// Serial is the number of new peaks so far.
	Serial uint64
	// Line is the history of the samples, and StaticLine that of circular buffers, in L1 only.
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

// Grew updates the peak; call it after an allocation. found is true for a buffer that was read
// from the memory of a process that was already running at the first event: the buffer was live
// since then. number is the number of the event.
func (q *Pool) Grew(now, number uint64, found bool) {
	if q.Bytes > q.Peak.Bytes {
		q.Restart(now, number)
	}
	q.draw(now, found)
}

// Shrank updates the timelines; call it after a free.
func (q *Pool) Shrank(now uint64) { q.draw(now, false) }

// SetLoad sets the bytes of buffers on single cores, on the core with the most.
func (q *Pool) SetLoad(core cores.Core, bytes uint64) {
	q.Bytes += bytes - q.load
	q.load, q.core = bytes, core
}

// Ran adds the sample of a program that ran. It reports whether it is a new peak.
func (q *Pool) Ran(at memory.Point, use *memory.CoreUse) (highest bool) {
	bytes, static := use.Bytes(), use.StaticBytes()
	if highest = bytes > q.Peak.Bytes; highest {
		q.Peak, q.PeakCore = Peak{bytes, static, at.TimeNs, q.Capacity(), at.Number}, cores.Core{X: use.X, Y: use.Y}
		q.Serial++
	}
	q.drawn = true
	q.Line.Set(at.TimeNs, bytes)
	q.StaticLine.Set(at.TimeNs, static)
	q.draw(at.TimeNs, false)
	return highest
}

// Restart makes the present use the peak.
func (q *Pool) Restart(now, number uint64) {
	q.Peak, q.PeakCore = Peak{q.Bytes, 0, now, q.Capacity(), number}, q.core
	q.Serial++
}

// draw adds the present use to the timelines.
func (q *Pool) draw(now uint64, found bool) {
	if q.drawn = q.drawn || !found; !q.drawn {
		q.RestartLines(q.Line.BeginNs)
		return
	}
	if before := q.Line.Now(); found && q.Bytes > before { // it was there at all times
		q.Line.Raise(q.Bytes-before, q.Peak.Bytes)
	}
	q.Line.Set(now, q.Bytes)
	if q.Region == event.L1 {
		q.StaticLine.Set(now, 0)
	}
}

// RestartLines makes the present use the beginning of the timelines.
func (q *Pool) RestartLines(now uint64) {
	q.Line.Restart(now, q.Bytes)
	q.StaticLine.Restart(now, 0)
}

// AddOthers adds the memory of the users whose buffers are not known to the present use of a shared
// region. Call it when all other buffers were counted.
func (q *Pool) AddOthers() {
	if q.Shared {
		q.Bytes = max(q.Bytes, q.all)
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

// Code writes or reads the pool without its present use, which follows from the buffers.
func (q *Pool) Code(c *codec.Codec) {
	q.Peak.Code(c)
	q.Earlier.Code(c)
	c.Bool(&q.Shared)
	c.Bool(&q.AtLeast)
	c.Value(&q.PeakCore)
	if !c.Reads {
		q.all = q.Bytes
	}
	c.Uints(&q.Serial, &q.all)
	q.Line.Code(c)
	q.StaticLine.Code(c)
	c.Bool(&q.drawn)
}
