package aggregate

import "math/bits"

// What a Growth knows at one moment, in bytes: what lives is not in it, but comes with
// the events of a checkpoint of that moment. docs/recordings.md has the form.

const (
	// growthNoteVersion is that of the form.
	growthNoteVersion = 1
	// maxGrowthNote is how long one may be: what is longer is not made.
	maxGrowthNote = 8 << 20
)

// A frozenGrowth is a Growth at one moment.
type frozenGrowth struct {
	Growth
	processes []*growthProcess // those that run, and those that sites are of
	sites     []growthSite
}

// Note returns what makes a note of what is known now, by which ResumeGrowth goes on:
// that may be called while events are applied, also by another goroutine. It gives nil
// where the note would be too long. Note itself copies what is known of call stacks; it
// is for a Growth with no other options than StackID.
func (g *Growth) Note() func() []byte {
	f := &frozenGrowth{Growth: *g, sites: make([]growthSite, len(g.sites))}
	copies := make(map[*growthProcess]*growthProcess, len(g.processes))
	frozen := func(p *growthProcess) *growthProcess {
		c := copies[p]
		if c == nil {
			c = new(growthProcess)
			*c = *p
			c.buffers, c.sites, c.byStack, c.ids = growthBuffers{}, nil, nil, nil
			copies[p] = c
			f.processes = append(f.processes, c)
		}
		return c
	}
	for _, p := range g.processes {
		frozen(p)
	}
	var last, lastCopy *growthProcess
	for i, s := range g.sites {
		if s.process != last {
			last, lastCopy = s.process, frozen(s.process)
		}
		f.sites[i] = *s
		f.sites[i].process = lastCopy
	}
	return f.encode
}

// The flags of a site in a note.
const (
	noteTouched = 1 << iota
	noteRests
	noteGrowing
	noteLonely
	noteOver // of a process
)

func (f *frozenGrowth) encode() []byte {
	if len(f.sites) > maxNoteSites || len(f.processes) > maxNoteProcesses || len(f.sets) > maxNoteSets {
		return nil
	}
	w := newGrowthWriter()
	w.sparse(f.first, f.now, uint64(f.serial), uint64(f.placed), uint64(f.from), uint64(f.to), uint64(f.keptSites), uint64(f.stepMarks), f.allocated,
		uint64(f.noted))
	w.number(uint64(len(f.names)))
	for _, name := range f.names {
		w.number(w.text(name))
	}
	w.number(uint64(len(f.marks)))
	number, time := 0, f.first
	for _, m := range f.marks {
		w.sparse(uint64(m.number-number), zigzag(m.time-time), w.text(m.name))
		number, time = m.number, m.time
	}
	o := &f.others
	w.sparse(o.ended.Count, o.ended.Bytes, o.torn.Count, o.torn.Bytes)
	w.history(o.history)

	w.number(uint64(len(f.processes)))
	numbers := make(map[*growthProcess]uint64, len(f.processes))
	for i, p := range f.processes {
		numbers[p] = uint64(i)
		w.sparse(flag(p.touched, noteTouched)|flag(p.over, noteOver), uint64(p.serial), zigzag(uint64(p.pid)),
			w.text(p.comm), w.text(p.command), p.allocations, p.frees)
		w.history(p.history)
	}
	w.number(uint64(len(f.sets)))
	sets := make(map[*growthSet]uint64, len(f.sets))
	for i, set := range f.sets {
		sets[set] = uint64(i)
		w.number(uint64(len(set.ids)))
		for _, id := range set.ids {
			w.number(zigzag(uint64(id)))
		}
	}
	w.number(uint64(len(f.sites)))
	for i := range f.sites {
		s := &f.sites[i]
		w.number(numbers[s.process])
		w.fixed(s.key.stack)
		f.site(w, s, sets[s.key.set])
		if len(w.body) > maxGrowthNote {
			return nil
		}
	}
	return w.note()
}

// site writes what is known of a site.
func (f *frozenGrowth) site(w *growthWriter, s *growthSite, set uint64) {
	p := s.process
	v := siteValues{
		flag(s.touched, noteTouched) | flag(s.rests, noteRests) | flag(s.best.Growing, noteGrowing) | flag(s.best.Lonely, noteLonely),
		set, uint64(s.key.region), uint64(s.key.layout), s.allocated,
		s.live.Count, s.live.Bytes, s.live.Count - s.fresh.Count, s.live.Bytes - s.fresh.Bytes,
	}
	// Its stack comes with what lives, or with what it allocates next: unless it may be
	// told of before.
	if s.stack != nil && s.live.Count == 0 && (s.ended.Count+s.torn.Count+s.tail.Count+s.replaced.Count > 0 || len(s.history) > 0) {
		v[siteStack] = w.stack(s.stack) + 1
	}
	if s.ended.Count > 0 {
		v[siteEnded], v[siteEnded+1] = s.ended.Count, s.ended.Bytes
		v[siteOldEnded], v[siteOldEnded+1] = s.ended.Count-s.freshEnded.Count, s.ended.Bytes-s.freshEnded.Bytes
		v[siteEndedAge] = s.endedAge
	}
	if s.torn.Count > 0 {
		v[siteTorn], v[siteTorn+1], v[siteTornTime] = s.torn.Count, s.torn.Bytes, f.now-s.tornNs
	}
	if s.tail.Count > 0 && s.tailAt == p.allocations {
		v[siteTail], v[siteTail+1], v[siteTailTime], v[siteTailLow] = s.tail.Count, s.tail.Bytes, f.now-s.tailNs, uint64(s.tailLow)
	}
	v[siteReplaced], v[siteReplaced+1] = s.replaced.Count, s.replaced.Bytes
	if f.to > 0 && s.goneAt == f.to {
		v[siteGone], v[siteGoneTime] = 1, f.now-s.oldGone
	}
	v[siteIntervals], v[siteRises], v[siteLast] = uint64(s.best.Intervals), uint64(s.best.Rises), uint64(s.best.Last)
	if !s.rests {
		v[siteMade], v[siteLastAt], v[siteGap] = s.made, p.allocations-s.lastAt, s.gap
		v[siteChurn], v[siteChurn+1] = p.frees-s.churn[0], p.frees-s.churn[1]
		v[siteTrend], v[siteShift], v[siteWindow] = p.allocations-s.trend.start, uint64(s.trend.shift), uint64(s.trend.at)
	}
	w.sparse(v[:]...)
	if !s.rests {
		before := uint32(0)
		for _, low := range s.trend.low[:s.trend.at+1] {
			w.number(zigzag(uint64(int64(int32(low - before)))))
			before = low
		}
	}
	w.history(s.history)
}

// The values of a site in a note: pairs are counts and bytes, and times are how long ago.
// Clocks are how much the process has allocated, or freed, since.
const (
	siteFlags = iota
	siteSet
	siteRegion
	siteLayout
	siteAllocated
	siteLive
	_
	siteOld // what of it is not fresh
	_
	siteStack // its number, from 1; 0: it comes with events
	siteEnded
	_
	siteOldEnded
	_
	siteEndedAge
	siteTorn
	_
	siteTornTime
	siteTail
	_
	siteTailTime
	siteTailLow
	siteReplaced
	_
	siteGone // 1 where something is gone that was there at the mark To
	siteGoneTime
	siteIntervals
	siteRises
	siteLast
	siteMade // this and what follows is of one whose trend goes on
	siteLastAt
	siteGap
	siteChurn
	_
	siteTrend
	siteShift
	siteWindow
	numSiteValues
)

type siteValues [numSiteValues]uint64

func flag(set bool, bit uint64) uint64 {
	if set {
		return bit
	}
	return 0
}

// zigzag makes small numbers of small differences, of either sign.
func zigzag(v uint64) uint64 { return v<<1 ^ uint64(int64(v)>>63) }

func unzigzag(u uint64) uint64 { return u>>1 ^ -(u & 1) }

// history writes what there was at marks, each as what differs from the one before.
func (w *growthWriter) history(steps []growthStep) {
	w.number(uint64(len(steps)))
	w.steps += len(steps)
	var before growthStep
	for i := range steps {
		s := &steps[i]
		w.sparse(uint64(s.mark-before.mark),
			zigzag(s.live.Count-before.live.Count), zigzag(s.live.Bytes-before.live.Bytes),
			zigzag(s.ended.Count-before.ended.Count), zigzag(s.ended.Bytes-before.ended.Bytes),
			zigzag(s.replaced.Count-before.replaced.Count), zigzag(s.replaced.Bytes-before.replaced.Bytes))
		before = *s
	}
}

// sparse writes numbers: a bit for each that is not 0, and then those.
func (w *growthWriter) sparse(values ...uint64) {
	mask := uint64(0)
	for i, v := range values {
		mask |= flag(v != 0, 1<<i)
	}
	w.number(mask)
	for ; mask != 0; mask &= mask - 1 {
		w.number(values[bits.TrailingZeros64(mask)])
	}
}
