package aggregate

import (
	"errors"
	"math/bits"

	"ttmem/tracer/event"
)

// errGrowthNote is what is wrong with a note that is of no use.
var errGrowthNote = errors.New("the note on leaks makes no sense, or is of a newer ttmem")

// A GrowthResume is a Growth that goes on where another one has made a note.
type GrowthResume struct {
	g *Growth
	// toNs is the time of the mark To.
	toNs    uint64
	found   map[*growthSite]Amount
	unknown bool // a buffer was, as the note has it
}

// ResumeGrowth reads a note. What lived then is to be added: the events of a checkpoint
// of that moment.
func ResumeGrowth(note []byte) (*GrowthResume, error) {
	r := &growthReader{b: note, stacks: new(noteStacks)}
	if len(note) > maxGrowthNote || r.number() != growthNoteVersion {
		return nil, errGrowthNote
	}
	r.define()
	g := NewGrowth(GrowthOptions{})
	r.moment(g)
	processes := r.processes(g)
	r.sets(g)
	for range r.upTo(maxNoteSites) {
		if r.bad {
			break
		}
		r.site(g, processes)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errGrowthNote
	}
	resume := &GrowthResume{g: g, found: make(map[*growthSite]Amount)}
	for _, m := range g.marks {
		if m.number == g.to {
			resume.toNs = m.time
		}
	}
	return resume, nil
}

// Add takes an event of the checkpoint.
func (r *GrowthResume) Add(e *event.Event) {
	g := r.g
	if e.Kind != event.Alloc || int(e.Region) >= event.BankedRegions || e.BeforeAttach {
		return
	}
	p := g.known(e.PID)
	if p == nil || p.buffers.get(e.BufferID) != nil {
		r.unknown = true
		return
	}
	key := growthKey{p.serial, stackID(e.Stack), g.set(e.Devices), e.Region, e.Layout}
	s := p.byStack[key.stack]
	for s != nil && s.key != key {
		s = s.next
	}
	if s == nil {
		r.unknown = true
		return
	}
	s.stack = e.Stack
	found := r.found[s]
	b := growthBuffer{
		site: s, id: e.BufferID, since: e.TimeNs, allocator: e.Allocator,
		bytes: e.BytesPerBank * uint64(e.Banks) * uint64(max(1, len(e.Devices))),
	}
	// They come in order: those are fresh that come last.
	switch {
	case found.Count+s.fresh.Count < s.live.Count:
	case g.to > 0 && e.TimeNs <= r.toNs:
		b.placed = uint32(g.from)
	default:
		b.placed = uint32(g.placed)
	}
	p.buffers.put(b)
	found.add(Amount{1, b.bytes})
	r.found[s] = found
}

// Growth is what goes on, when all of the checkpoint was added. An error says that the
// two are not of the same moment.
func (r *GrowthResume) Growth() (*Growth, error) {
	for _, s := range r.g.sites {
		if r.found[s] != s.live {
			r.unknown = true
		}
	}
	if r.unknown {
		return nil, errors.New("the note on leaks and its checkpoint do not fit together")
	}
	return r.g, nil
}

// moment reads what is of no process.
func (r *growthReader) moment(g *Growth) {
	var v [10]uint64
	r.sparse(v[:])
	const most = 1 << 31
	if v[2] > most || v[3] > most || v[4] > v[3] || v[5] > v[3] || v[6] > most || v[7] > most || v[9] > most {
		r.fail()
		return
	}
	g.first, g.now, g.serial, g.placed, g.from, g.to = v[0], v[1], uint32(v[2]), int(v[3]), int(v[4]), int(v[5])
	g.keptSites, g.stepMarks, g.allocated, g.noted = int(v[6]), int(v[7]), v[8], int(v[9])
	for range r.upTo(maxMarkNames) {
		if r.bad {
			return
		}
		g.names = append(g.names, r.text(r.number()))
	}
	number, time := uint64(0), g.first
	for range r.upTo(2 * maxGrowthMarks) {
		var m [3]uint64
		r.sparse(m[:])
		number += m[0]
		time += unzigzag(m[1])
		if m[0] == 0 || m[0] > uint64(g.placed) || number > uint64(g.placed) {
			r.fail()
		}
		if r.bad {
			return
		}
		g.marks = append(g.marks, growthMark{int(number), r.text(m[2]), time})
	}
	o := &g.others
	r.sparse(v[:4])
	o.ended, o.torn = Amount{v[0], v[1]}, Amount{v[2], v[3]}
	o.history = r.history(g)
}

// processes reads those that run, and those that sites are of.
func (r *growthReader) processes(g *Growth) (list []*growthProcess) {
	serials := make(map[uint32]bool)
	for range r.upTo(maxNoteProcesses) {
		var v [7]uint64
		r.sparse(v[:])
		p := &growthProcess{
			touched: v[0]&noteTouched != 0, over: v[0]&noteOver != 0, serial: uint32(v[1]), pid: int(unzigzag(v[2])),
			comm: r.text(v[3]), command: r.text(v[4]), allocations: v[5], frees: v[6], history: r.history(g),
		}
		if v[1] > uint64(g.serial) || serials[p.serial] || !p.over && g.processes[p.pid] != nil {
			r.fail()
		}
		if r.bad {
			return nil
		}
		serials[p.serial] = true
		list = append(list, p)
		if !p.over {
			p.byStack = make(map[uint64]*growthSite)
			g.processes[p.pid] = p
		}
		if p.touched {
			g.touchedProcesses = append(g.touchedProcesses, p)
		}
	}
	return list
}

func (r *growthReader) sets(g *Growth) {
	for range r.upTo(maxNoteSets) {
		if r.bad {
			return
		}
		n := r.count()
		if n == 0 {
			// as an event has it that names no chip
			g.sets = append(g.sets, &growthSet{})
			continue
		}
		set := &growthSet{ids: make([]int, n)}
		for i := range set.ids {
			set.ids[i] = int(unzigzag(r.number()))
		}
		g.sets = append(g.sets, set)
	}
}

func (r *growthReader) site(g *Growth, processes []*growthProcess) {
	n, stack := r.number(), r.fixed()
	var v siteValues
	r.sparse(v[:])
	if r.bad || n >= uint64(len(processes)) || v[siteSet] >= uint64(len(g.sets)) || v[siteRegion] >= uint64(event.BankedRegions) ||
		v[siteLayout] > 255 || v[siteOld] > v[siteLive] || v[siteOld+1] > v[siteLive+1] ||
		v[siteOldEnded] > v[siteEnded] || v[siteOldEnded+1] > v[siteEnded+1] {
		r.fail()
		return
	}
	p := processes[n]
	pair := func(i int) Amount { return Amount{v[i], v[i+1]} }
	s := &growthSite{
		key:     growthKey{p.serial, stack, g.sets[v[siteSet]], event.Region(v[siteRegion]), event.Layout(v[siteLayout])},
		process: p, allocated: v[siteAllocated], live: pair(siteLive), fresh: pair(siteLive), ended: pair(siteEnded), freshEnded: pair(siteEnded),
		endedAge: v[siteEndedAge], torn: pair(siteTorn), tornNs: g.now - v[siteTornTime], replaced: pair(siteReplaced),
		tail: pair(siteTail), tailAt: p.allocations, tailNs: g.now - v[siteTailTime], tailLow: uint32(v[siteTailLow]),
		best: Trend{
			Intervals: int(v[siteIntervals]), Rises: int(v[siteRises]), Last: int(v[siteLast]),
			Growing: v[siteFlags]&noteGrowing != 0, Lonely: v[siteFlags]&noteLonely != 0,
		},
		rests: v[siteFlags]&noteRests != 0, touched: v[siteFlags]&noteTouched != 0,
	}
	s.fresh.sub(pair(siteOld))
	s.freshEnded.sub(pair(siteOldEnded))
	if v[siteGone] != 0 {
		s.goneAt, s.oldGone = g.to, g.now-v[siteGoneTime]
	}
	if v[siteStack] > 0 {
		s.stack = r.stack(v[siteStack]-1, stack)
	}
	if !s.rests {
		r.trend(s, &v)
	}
	s.history = r.history(g)
	if r.bad {
		return
	}
	if s.touched {
		g.touched = append(g.touched, s)
	}
	g.addSite(s)
}

// trend reads the trend of a site, which goes on.
func (r *growthReader) trend(s *growthSite, v *siteValues) {
	p := s.process
	// a trend begins before an allocation
	if v[siteTrend] == 0 || v[siteTrend] > p.allocations || v[siteLastAt] > p.allocations || v[siteShift] > 63 ||
		v[siteWindow] >= trendWindows || v[siteChurn] > p.frees || v[siteChurn+1] > p.frees {
		r.fail()
		return
	}
	s.made, s.lastAt, s.gap = v[siteMade], p.allocations-v[siteLastAt], v[siteGap]
	s.churn = [2]uint64{p.frees - v[siteChurn], p.frees - v[siteChurn+1]}
	s.trend = trend{start: p.allocations - v[siteTrend], shift: uint8(v[siteShift]), at: uint8(v[siteWindow])}
	before := uint32(0)
	for i := range s.trend.at + 1 {
		before += uint32(unzigzag(r.number()))
		s.trend.low[i] = before
	}
}

// history reads what there was at marks.
func (r *growthReader) history(g *Growth) (steps []growthStep) {
	var s growthStep
	n := r.count()
	if r.steps += n; r.steps > maxNoteSteps {
		r.fail()
		return nil
	}
	for range n {
		var v [7]uint64
		r.sparse(v[:])
		if v[0] == 0 || v[0] > uint64(g.placed)+1 || s.mark+int(v[0]) > g.placed+1 {
			r.fail()
		}
		if r.bad {
			return nil
		}
		s.mark += int(v[0])
		for i, to := range []*uint64{&s.live.Count, &s.live.Bytes, &s.ended.Count, &s.ended.Bytes, &s.replaced.Count, &s.replaced.Bytes} {
			*to += unzigzag(v[i+1])
		}
		steps = append(steps, s)
	}
	return steps
}

// sparse reads numbers as they were written: those that are 0 are not there.
func (r *growthReader) sparse(values []uint64) {
	clear(values)
	mask := r.number()
	if bits.Len64(mask) > len(values) {
		r.fail()
		return
	}
	for ; mask != 0; mask &= mask - 1 {
		values[bits.TrailingZeros64(mask)] = r.number()
	}
}
