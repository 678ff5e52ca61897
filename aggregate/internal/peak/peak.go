// Package peak follows the use of one chip, by all processes or by one: what is in use now, the peaks, who
// had what at these, and the use over time.
package peak

import (
	"cmp"
	"slices"

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

// Raise adds a sample of a region, static bytes of which are of the program that ran then.
func (p *Peaks) Raise(region event.Region, bytes, static uint64, at memory.Point, capacity *event.Capacity) {
	if bytes > p[region].Bytes {
		p[region] = Peak{bytes, static, at.TimeNs, Capacity(region, capacity), at.Number}
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
	Device int
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
	// parts are those of the program that ran at the peak, on the fullest core, if its Static is not 0.
	parts []Part
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
	// Paused is true while samples do not count for the peak.
	Paused bool
}

// A Part is a part of the program that ran at a peak, with the user of its process.
type Part struct {
	memory.PeakProgram
	UID int
}

// Pools are those of one chip, by region.
type Pools [event.BankedRegions]Pool

// NewPools returns the empty pools of a chip, whose timelines begin at a time. capacities are the present
// ones.
func NewPools(device int, capacities *memory.Capacities, begin uint64) (list Pools) {
	for region := range list {
		q := &list[region]
		q.Device, q.Region, q.capacity = device, event.Region(region), &capacities[region]
		q.Line.BeginNs, q.StaticLine.BeginNs = begin, begin
	}
	return list
}

// Highest returns the highest peak of each pool.
func (l *Pools) Highest() (list Peaks) {
	for region := range l {
		list[region] = l[region].Highest()
	}
	return list
}

// Restart makes the present use the peak of each pool.
func (l *Pools) Restart(now, number uint64) {
	for region := range l {
		l[region].restart(now, number)
	}
}

// Pause makes samples count for the peaks no more or, if not paused, again: the present use first.
func (l *Pools) Pause(paused bool, now, number uint64) {
	for region := range l {
		q := &l[region]
		if q.Paused = paused; !paused && q.Bytes > q.Peak.Bytes {
			q.restart(now, number)
		}
	}
}

// RestartLines makes the present use the beginning of all timelines; begins is true if a stream of events
// begins as well.
func (l *Pools) RestartLines(now uint64, begins bool) {
	for region := range l {
		l[region].restartLines(now)
		l[region].drawn = l[region].drawn && !begins
	}
}

// SharedBy returns the pools as they are written for some of the users of a chip: the sums of all users,
// and the program at the peak only if it is of a selected one.
func (l Pools) SharedBy(selected func(uid int) bool) Pools {
	for region := range l {
		l[region].Shared = true
	}
	l1 := &l[event.L1]
	l1.parts = slices.DeleteFunc(slices.Clone(l1.parts), func(p Part) bool { return !selected(p.UID) })
	return l
}

// Keep makes the peaks of one process the earlier peaks of the chip, where they are higher.
func (l *Pools) Keep(of *Peaks) {
	for region, before := range of {
		if q := &l[region]; before.Bytes > q.Earlier.Bytes {
			q.Earlier = before
		}
	}
}

// Code writes or reads the pools without their present use and the parts of programs.
func (l *Pools) Code(c *codec.Codec) {
	for region := range l {
		l[region].code(c)
	}
}

// CodeParts writes or reads the parts of the program that ran at the peak of L1.
func (l *Pools) CodeParts(c *codec.Codec) {
	codec.List(c, &l[event.L1].parts, func(p *Part) {
		codec.Number(c, &p.PID)
		codec.Number(c, &p.UID)
		c.Uints(&p.ProgramID, &p.Count, &p.Bytes)
		codec.Number(c, &p.Kind)
		c.Stack(&p.Stack)
		c.Bool(&p.BeforeAttach)
	})
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
	if q.Bytes > q.Peak.Bytes && !q.Paused {
		q.restart(now, number)
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

// Ran adds the sample of a program that ran. It reports whether it is a new peak. partsOf returns the
// parts of the program on a core.
func (q *Pool) Ran(at memory.Point, use *memory.CoreUse, partsOf func(cores.Core) []Part) (highest bool) {
	bytes, static := use.Bytes(), use.StaticBytes()
	if highest = bytes > q.Peak.Bytes && !q.Paused; highest {
		q.Peak, q.PeakCore = Peak{bytes, static, at.TimeNs, q.Capacity(), at.Number}, cores.Core{X: use.X, Y: use.Y}
		q.Serial++
		q.parts = partsOf(q.PeakCore)
	}
	q.drawn = true
	q.Line.Set(at.TimeNs, bytes)
	q.StaticLine.Set(at.TimeNs, static)
	q.draw(at.TimeNs, false)
	return highest
}

// restart makes the present use the peak.
func (q *Pool) restart(now, number uint64) {
	q.Peak, q.PeakCore = Peak{q.Bytes, 0, now, q.Capacity(), number}, q.core
	q.Serial++
}

// draw adds the present use to the timelines.
func (q *Pool) draw(now uint64, found bool) {
	if q.drawn = q.drawn || !found; !q.drawn {
		q.restartLines(q.Line.BeginNs)
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

// restartLines makes the present use the beginning of the timelines.
func (q *Pool) restartLines(now uint64) {
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

// Highest returns the highest known peak.
func (q *Pool) Highest() Peak {
	if q.Earlier.Bytes >= q.Peak.Bytes {
		return q.Earlier
	}
	return q.Peak
}

// code writes or reads the pool without its present use, which follows from the buffers.
func (q *Pool) code(c *codec.Codec) {
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

// Point returns the peak.
func (q *Pool) Point() memory.PeakPoint {
	return memory.PeakPoint{
		Point: memory.Point{Number: q.Peak.Number, TimeNs: q.Peak.TimeNs}, Device: q.Device, Region: q.Region,
		Bytes: q.Peak.Bytes, CapacityBytes: cmp.Or(q.Peak.Capacity, q.Capacity()),
	}
}

// View returns the peak with the call sites that had a share of it, in the order of their bytes. It keeps
// and sorts the slice.
func (q *Pool) View(holders []memory.SiteAmount) memory.RegionPeak {
	slices.SortFunc(holders, func(a, b memory.SiteAmount) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), a.Compare(&b.Site), cmp.Compare(b.Count, a.Count))
	})
	view := memory.RegionPeak{
		PeakPoint: q.Point(), AtLeast: q.AtLeast, StaticBytes: q.Peak.Static, Holders: holders,
		Timeline: q.Line.Clone(), StaticTimeline: q.StaticLine.Clone(),
	}
	var covered uint64
	if q.Peak.Static > 0 {
		for _, p := range q.parts {
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
