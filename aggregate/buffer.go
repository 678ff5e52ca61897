package aggregate

import (
	"ttmem/tracer/event"
)

// A buffer is one that is allocated. A million of them have to fit: mind the
// size, which is 96 bytes.
type buffer struct {
	*callSite               // where it was allocated, with its region, layout and chips
	id, object, allocator   uint64
	address, size, pageSize uint64
	perBank                 uint64
	since                   uint64
	comm                    string
	tid                     int32
	banks                   uint32
}

// allocated is what the buffer takes of all its banks on each chip, in bytes.
func (b *buffer) allocated() uint64 { return b.perBank * uint64(b.banks) }

// bytes is what the buffer takes on all chips.
func (b *buffer) bytes() uint64 { return b.allocated() * uint64(max(1, len(b.set.chips))) }

// counts is what the buffer counts in its pools.
func (b *buffer) counts() uint64 {
	if b.region == event.L1 {
		return b.perBank
	}
	return b.allocated()
}

func (s *State) alloc(e *event.Event) {
	if int(e.Region) >= event.BankedRegions {
		s.anomalies.MalformedEvents++
		return
	}
	p := s.process(e)
	if old := p.buffers.get(e.BufferID); old != nil {
		s.anomalies.ReplacedBuffers++
		s.drop(p, old, e.TimeNs, event.ReasonExplicit) // its free was lost
	}
	if len(e.Devices) == 0 {
		s.anomalies.UnplacedBuffers++
	}
	b := &buffer{
		callSite: s.site(p, s.set(p, e.Devices), siteKey{region: e.Region, layout: e.Layout, before: e.BeforeAttach}, e.Stack),
		id:       e.BufferID, object: e.Object, allocator: e.Allocator,
		address: e.Address, size: e.SizeBytes, pageSize: e.PageSizeBytes,
		perBank: e.BytesPerBank, banks: e.Banks, since: e.TimeNs,
		comm: e.Comm, tid: int32(e.TID),
	}
	p.buffers.put(b)
	if !b.before {
		s.born++
		p.bear(b)
	}
	p.held[b.region].add(b)
	b.insertBlock()
	if b.before {
		p.beforeAttach++
	}
	s.addTo(b.callSite, b.allocated(), b.perBank, b.since)
	found := b.before && p.early
	for _, q := range b.set.poolsOf(b.region) {
		q.bytes += b.counts()
		q.grew(b.since, found)
	}
	for _, c := range b.set.chips {
		c.used.add(b, c.capacities(), b.since)
		c.chip.used.add(b, &c.chip.capacities, b.since)
		c.grew(b.region, b.since)
	}
}

// free ends a buffer. What was counted at its allocation is taken back,
// whatever the event says of its size.
func (s *State) free(e *event.Event) {
	p := s.known(e.PID)
	if p == nil {
		s.anomalies.RepeatedFrees++
		return
	}
	b := p.buffers.get(e.BufferID)
	if b == nil {
		s.anomalies.RepeatedFrees++
		return
	}
	s.drop(p, b, e.TimeNs, e.Reason)
}

// drop forgets a buffer that is allocated, and ends now for that reason.
func (s *State) drop(p *process, b *buffer, now uint64, reason event.Reason) {
	if isEnd(reason) {
		p.leave(b, reason)
	}
	if !b.before {
		p.part(b, reason, s.now)
		s.between.part(p, b, reason, s.now)
	}
	p.buffers.remove(b)
	s.removeFrom(b.callSite, b.allocated(), b.perBank, b.since, reason)
	for _, q := range b.set.poolsOf(b.region) {
		q.bytes -= b.counts()
		q.shrank(now)
	}
	p.held[b.region].remove(b)
	b.removeBlock()
	for _, c := range b.set.chips {
		for _, u := range c.both() {
			u.remove(b)
		}
	}
}
