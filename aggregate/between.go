package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// between follows which buffers survive from one moment to another. It needs a pointer for
// each buffer that is live at the second moment and ends later, so it exists only if it was
// requested.
type between struct {
	// fromNs and toNs are the moments; toNs is 0 if the second one is the end.
	fromNs, toNs uint64
	// before counts the buffers that were live at the first moment.
	before map[*callSite]memory.Amount
	// gone are buffers that were live at the second moment and ended later. If the second
	// moment is the end, gone ended with their device or process, and freedAtTeardown were
	// freed between the last allocation and that.
	gone, freedAtTeardown []endedBuffer
	// ended counts the buffers that ended with their device or process, and endedBefore those
	// of them that ended before the second moment.
	ended, endedBefore memory.Amount
	// past are the buffers that had ended when the first moment was set, if that is earlier.
	past []*pastBuffers
}

// An endedBuffer is a buffer and the time of its end, or the second moment if that is earlier.
type endedBuffer struct {
	*buffer
	endNs uint64
}

// FollowFrom sets the first of the two moments, in ns: now or a mark from before that KnowsAt
// knows. Of other moments the buffers that were freed since are not known.
func (s *State) FollowFrom(ns uint64) {
	s.between = &between{fromNs: ns, before: make(map[*callSite]memory.Amount)}
	if ns < s.now {
		s.between.past = slices.Clone(s.past.list)
	}
	for _, one := range s.between.past {
		if one.isLiveAt(ns) {
			addAmount(s.between.before, one.site, one.Amount)
		}
	}
	for _, p := range s.processes {
		for b := range p.buffers.All() {
			if b.since <= ns && !b.before {
				addAmount(s.between.before, b.callSite, memory.Amount{Count: 1, Bytes: b.allocated()})
			}
		}
	}
}

func addAmount(sums map[*callSite]memory.Amount, c *callSite, size memory.Amount) {
	sum := sums[c]
	sum.Add(size)
	sums[c] = sum
}

// FollowTo sets the second moment, in ns: now or, right after FollowFrom, a mark from before. A
// later call moves it.
func (s *State) FollowTo(ns uint64) {
	b := s.between
	b.toNs, b.endedBefore = ns, b.ended
	b.gone, b.freedAtTeardown = nil, nil
}

// end notes that a buffer ends.
func (b *between) end(p *process, one *buffer, now uint64, reason event.Reason) {
	if b == nil || one.before {
		return
	}
	switch {
	case b.toNs == 0 && !isEnd(reason):
		p.name.freedLast = append(p.name.freedLast, endedBuffer{one, now})
	case b.toNs == 0:
		b.gone = append(b.gone, endedBuffer{one, now})
	case one.since <= b.toNs:
		b.gone = append(b.gone, endedBuffer{one, b.toNs})
	}
	if isEnd(reason) && one.since > b.fromNs {
		b.ended.Add(memory.Amount{Count: 1, Bytes: one.bytes()})
	}
}

// endAll notes that all buffers of an arena end; all buffers of the process if only is nil.
func (b *between) endAll(p *process, only *arena, now uint64) {
	if b == nil {
		return
	}
	if b.toNs == 0 {
		b.freedAtTeardown = append(b.freedAtTeardown, p.name.freedLast...)
	}
	p.name.freedLast = nil
	for one := range p.buffers.All() {
		if only == nil || one.arena == only {
			b.end(p, one, now, event.ReasonDeviceClose)
		}
	}
}

// Between returns the buffers that survived from the first moment to the second, by call site,
// with births in the intervals between times. These begin with the first moment. over counts
// the buffers that ended with their device or process before the second moment. The cost
// depends on the number of live buffers.
func (s *State) Between(times []uint64) (list []memory.SurvivorsBetween, over memory.Amount) {
	follow := s.between
	to := cmp.Or(follow.toNs, s.now)
	index := make(map[*callSite]int)
	still := make(map[*callSite]memory.Amount)
	of := func(c *callSite) *memory.SurvivorsBetween {
		i, ok := index[c]
		if !ok {
			i = len(list)
			index[c] = i
			intervals := max(0, len(times)-1)
			list = append(list, memory.SurvivorsBetween{
				Survivors: c.named().Survivors,
				Births:    make([]memory.Amount, intervals), TeardownBirths: make([]memory.Amount, intervals),
			})
		}
		return &list[i]
	}
	survive := func(c *callSite, size memory.Amount, since, end uint64, atTeardown bool) {
		one := of(c)
		sum, births := &one.Amount, one.Births
		if atTeardown {
			sum, births = &one.FreedAtTeardown, one.TeardownBirths
		}
		sum.Add(size)
		one.AgeNs = max(one.AgeNs, end-min(end, since))
		if i, _ := slices.BinarySearch(times, since); i > 0 && i <= len(births) {
			births[i-1].Add(size)
		}
	}
	add := func(b *buffer, end uint64, atTeardown bool) {
		switch {
		case b.before || b.since > to:
		case b.since <= follow.fromNs:
			addAmount(still, b.callSite, memory.Amount{Count: 1, Bytes: b.allocated()})
		default:
			survive(b.callSite, memory.Amount{Count: 1, Bytes: b.bytes()}, b.since, end, atTeardown)
		}
	}
	for _, p := range s.byPID() {
		for b := range p.buffers.All() {
			add(b, to, false)
		}
	}
	for _, b := range follow.freedAtTeardown {
		add(b.buffer, b.endNs, true)
	}
	for _, b := range follow.gone {
		add(b.buffer, b.endNs, false)
	}
	over = follow.endedBefore
	for _, one := range follow.past {
		bytes := one.Bytes * uint64(max(1, len(one.site.set.chips)))
		isLive := follow.toNs > 0 && one.isLiveAt(follow.toNs)
		switch {
		case one.after < follow.fromNs && isLive:
			addAmount(still, one.site, one.Amount)
		case one.after < follow.fromNs:
		case isLive, follow.toNs == 0 && one.ended:
			survive(one.site, memory.Amount{Count: one.Count, Bytes: bytes}, one.sinceNs, to, false)
		case one.ended && one.last < follow.toNs:
			over.Add(memory.Amount{Count: one.Count, Bytes: bytes})
		}
	}
	for c, before := range follow.before {
		if still := still[c]; before.Count > still.Count {
			chips := uint64(max(1, len(c.set.chips)))
			of(c).Replaced = memory.Amount{
				Count: before.Count - still.Count,
				Bytes: (before.Bytes - min(before.Bytes, still.Bytes)) * chips,
			}
		}
	}
	slices.SortStableFunc(list, func(a, b memory.SurvivorsBetween) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(memory.StackID(a.Stack), memory.StackID(b.Stack)))
	})
	return list, over
}
