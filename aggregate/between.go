package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// between follows which buffers survive from one moment to another. It needs a pointer for
// each buffer that is live at the second moment and ends later, so it exists only if it was
// requested.
type between struct {
	// fromNs and toNs are the moments; toNs is 0 where the second one is the end.
	fromNs, toNs uint64
	// before is what was live at the first moment.
	before map[*callSite]Amount
	// endedAfter were live at the second moment. If that is the end, ended are the buffers
	// that ended with their device or process, and freedAtTeardown those that were freed
	// between the last allocation and that.
	endedAfter, ended, freedAtTeardown []endedBuffer
	// endedBefore is what ended with its device or process before the second moment, and
	// later what did so afterwards.
	endedBefore, later Amount
}

// An endedBuffer is a buffer and the time of its end.
type endedBuffer struct {
	*buffer
	endNs uint64
}

// FollowFrom begins to follow what survives, from a time on, in ns: now, or an earlier time,
// of which only what is still live is known.
func (s *State) FollowFrom(ns uint64) {
	s.between = &between{fromNs: ns, before: make(map[*callSite]Amount)}
	for _, p := range s.processes {
		for b := range p.buffers.all() {
			if b.since <= ns && !b.callSite.before {
				sum := s.between.before[b.callSite]
				sum.Add(Amount{1, b.allocated()})
				s.between.before[b.callSite] = sum
			}
		}
	}
}

// FollowTo makes now the end of what is followed; ns is the time. A later call moves the
// end.
func (s *State) FollowTo(ns uint64) {
	b := s.between
	for _, one := range b.ended {
		b.addEnded(&b.endedBefore, one.buffer)
	}
	b.endedBefore.Add(b.later)
	b.toNs, b.later = ns, Amount{}
	b.endedAfter, b.ended, b.freedAtTeardown = nil, nil, nil
}

func (b *between) addEnded(sum *Amount, one *buffer) {
	if one.since > b.fromNs {
		sum.Add(Amount{1, one.bytes()})
	}
}

// noteEnd notes that a buffer ends.
func (b *between) noteEnd(p *process, one *buffer, now uint64, reason event.Reason) {
	switch {
	case b == nil || one.before:
	case b.toNs == 0 && isEnd(reason):
		b.ended = append(b.ended, endedBuffer{one, now})
	case b.toNs == 0:
		p.name.run.freedLast = append(p.name.run.freedLast, endedBuffer{one, now})
	default:
		if one.since <= b.toNs {
			b.endedAfter = append(b.endedAfter, endedBuffer{one, b.toNs})
		}
		if isEnd(reason) {
			b.addEnded(&b.later, one)
		}
	}
}

// endRun notes that all buffers of an arena end; all buffers of the process if only is nil.
func (b *between) endRun(p *process, only *arena, now uint64) {
	if b == nil {
		return
	}
	if b.toNs == 0 {
		b.freedAtTeardown = append(b.freedAtTeardown, p.name.run.freedLast...)
	}
	p.name.run.freedLast = nil
	for one := range p.buffers.all() {
		if only == nil || one.arena == only {
			b.noteEnd(p, one, now, event.ReasonDeviceClose)
		}
	}
}

// SurvivorsBetween is what one call site allocated after the first of two moments and what
// survived to the second.
type SurvivorsBetween struct {
	// Survivors has no Run.
	Survivors
	// Births are the survivors by the intervals in which they were allocated, and
	// TeardownBirths those of FreedAtTeardown.
	Births, TeardownBirths []Amount
	// Replaced is what was live at the first moment and is gone: as many survivors may
	// only have taken its place.
	Replaced Amount
}

// Between returns what survived between the moments, by call site, with births in the
// intervals between times, the first of which is the first moment. over is what ended with
// its device or process before the second moment. The cost is that of the live buffers.
func (s *State) Between(times []uint64) (list []SurvivorsBetween, over Amount) {
	follow := s.between
	sites := make(map[*callSite]*SurvivorsBetween)
	old := make(map[*callSite]Amount)
	var order []*callSite
	of := func(c *callSite) *SurvivorsBetween {
		one := sites[c]
		if one == nil {
			one = &SurvivorsBetween{Survivors: c.named(), Births: make([]Amount, max(0, len(times)-1)), TeardownBirths: make([]Amount, max(0, len(times)-1))}
			sites[c], order = one, append(order, c)
		}
		return one
	}
	add := func(b *buffer, torn bool, now uint64) {
		size := Amount{1, b.bytes()}
		switch {
		case b.before || follow.toNs != 0 && b.since > follow.toNs:
			return
		case b.since <= follow.fromNs:
			sum := old[b.callSite]
			sum.Add(Amount{1, b.allocated()})
			old[b.callSite] = sum
			return
		}
		one := of(b.callSite)
		sum, births := &one.Amount, one.Births
		if torn {
			sum, births = &one.FreedAtTeardown, one.TeardownBirths
		}
		sum.Add(size)
		one.AgeNs = max(one.AgeNs, now-min(now, b.since))
		if i, _ := slices.BinarySearch(times, b.since); i > 0 && i <= len(births) {
			births[i-1].Add(size)
		}
	}
	at := follow.toNs
	if at == 0 {
		at = s.now
	}
	for _, p := range s.byPID() {
		for b := range p.buffers.all() {
			add(b, false, at)
		}
	}
	for _, b := range follow.freedAtTeardown {
		add(b.buffer, true, b.endNs)
	}
	for _, gone := range [][]endedBuffer{follow.endedAfter, follow.ended} {
		for _, b := range gone {
			add(b.buffer, false, b.endNs)
		}
	}
	for c, before := range follow.before {
		still := old[c]
		if before.Count > still.Count {
			chips := uint64(max(1, len(c.set.chips)))
			of(c).Replaced = Amount{before.Count - still.Count, (before.Bytes - min(before.Bytes, still.Bytes)) * chips}
		}
	}
	for _, c := range order {
		list = append(list, *sites[c])
	}
	slices.SortStableFunc(list, func(a, b SurvivorsBetween) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(stackID(a.Stack), stackID(b.Stack)))
	})
	return list, follow.endedBefore
}
