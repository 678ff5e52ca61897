package aggregate

import (
	"math"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/space"
	"ttmem/tracer/event"
)

// A buffer is a live buffer. There may be a million of them, so its size matters: 96 bytes.
type buffer struct {
	*callSite // where it was allocated, with its region, layout, allocator and chips
	memory.Allocation
}

// tally returns the buffer's share of the totals of each chip.
func (b *buffer) tally() memory.Tally {
	t := memory.Tally{Amount: memory.Amount{Count: 1, Bytes: b.AllocatedBytes()}, Size: b.SizeBytes, PerBank: b.BytesPerBank}
	if b.PerCore {
		t.PerBank = 0 // loadCores counts it
	}
	return t
}

// bytes returns the bytes that the buffer occupies on all chips.
func (b *buffer) bytes() uint64 { return b.AllocatedBytes() * b.Chips() }

func (s *State) alloc(e *event.Event) {
	if int(e.Region) >= event.BankedRegions {
		s.anomalies.MalformedEvents++
		return
	}
	p := s.process(e)
	if old := p.buffers.Get(e.BufferID); old != nil {
		s.anomalies.ReplacedBuffers++
		s.drop(p, old, e.TimeNs, event.ReasonExplicit) // its free was lost
	}
	if len(e.Devices) == 0 {
		s.anomalies.UnplacedBuffers++
	}
	site := s.site(p, s.arena(p, s.set(p, e.Devices), e.Allocator), memory.Site{
		Region: e.Region, Layout: e.Layout, BeforeAttach: e.BeforeAttach, PerCore: e.PerCore && e.Region == event.L1, Stack: e.Stack,
	})
	if site == nil || !s.hold(p, 1) {
		return
	}
	b := &buffer{site, memory.Allocation{
		BufferID: e.BufferID, Object: e.Object, Address: e.Address, SizeBytes: e.SizeBytes, PageSizeBytes: e.PageSizeBytes,
		BytesPerBank: e.BytesPerBank, DataBanks: uint16(min(e.Banks, math.MaxUint16)), SinceNs: e.TimeNs, Comm: e.Comm, TID: int32(e.TID),
	}}
	b.Banks = b.DataBanks
	if !b.PerCore {
		b.Banks = max(b.Banks, p.banks(b.arena, b.Region))
	}
	if b.PerCore {
		if b.CoreSet = p.coreSets.Of(e.Cores); b.CoreSet != nil && b.CoreSet.Len()*site.set.count > maxBufferCores {
			b.CoreSet = nil
		}
		if b.CoreSet == nil {
			s.anomalies.UnknownCores++
			if len(e.Cores) > 0 {
				s.beyond(p)
			}
		}
	}
	p.buffers.Put(b.BufferID, b)
	if !b.BeforeAttach {
		s.allocations++
		p.name.freedLast = p.name.freedLast[:0]
		p.name.run.Alloc(&b.run, b.BufferID, b.SinceNs)
	}
	t := b.tally()
	b.changeBlocks((*space.List).Add)
	if b.BeforeAttach {
		p.beforeAttach++
	}
	s.addTo(b.callSite, t, b.SinceNs)
	b.loadCores()
	p.add(b.callSite, t)
	if shared := s.cover(p, b, false); len(shared) > 0 && !p.isSubDevice(b.arena) {
		s.noteOverlap(b, shared)
	}
	for _, q := range b.set.poolsOf(b.Region) {
		q.Grew(b.SinceNs, s.applied, b.BeforeAttach && p.early)
	}
	for _, c := range b.set.chips {
		c.peaks.Raise(b.Region, c.used.Of(b.Region), 0, memory.Point{TimeNs: b.SinceNs}, &c.capacities()[b.Region])
		// a trace runs programs again: those that were enqueued during its capture
		if b.Region == event.Trace && (b.BeforeAttach || !p.captures) {
			c.chip.pools[event.L1].AtLeast = true
		}
	}
}

// free ends a buffer. It subtracts the size that the allocation had, not that of the event.
func (s *State) free(e *event.Event) {
	p := s.known(e.PID)
	if p == nil {
		s.anomalies.RepeatedFrees++
		return
	}
	b := p.buffers.Get(e.BufferID)
	if b == nil {
		s.anomalies.RepeatedFrees++
		return
	}
	p.freed.add(b, e)
	s.drop(p, b, e.TimeNs, e.Reason)
}

// drop removes a live buffer.
func (s *State) drop(p *process, b *buffer, now uint64, reason event.Reason) {
	t := b.tally()
	if reason.IsEnd() {
		p.count(b.callSite, t, reason)
	}
	if !b.BeforeAttach {
		p.name.run.Free(&b.run, b.BufferID, b.bytes(), reason.IsEnd())
		s.noteEnd(b, now, reason.IsEnd())
	}
	s.keepOwner(p, b, now, reason.IsEnd())
	p.buffers.Remove(b.BufferID)
	s.hold(p, -1)
	b.changeBlocks((*space.List).Remove)
	s.removeFrom(b.callSite, t, b.SinceNs, reason)
	b.unloadCores()
	b.uncover()
	p.add(b.callSite, t.Negative())
	for _, q := range b.set.poolsOf(b.Region) {
		q.Shrank(now)
	}
}

// count adds buffers of a call site to the totals of a reason.
func (p *process) count(c *callSite, t memory.Tally, reason event.Reason) {
	p.totals[reason][c.Region].Add(t.On(c.set.count))
}

// add adds buffers of a call site to the totals.
func (p *process) add(c *callSite, t memory.Tally) {
	for _, q := range c.set.poolsOf(c.Region) {
		q.Bytes += t.Counts(c.Region)
	}
	p.count(c, t, event.NoReason)
	for _, chip := range c.set.chips {
		for _, u := range chip.both() {
			u.Regions[c.Region].Add(t)
		}
	}
}

// endIn ends all buffers on a set of chips, or only those of one arena, and returns their
// number. Its cost depends on the number of call sites. The caller must remove the buffers
// from the process.
func (s *State) endIn(p *process, set *deviceSet, only *arena, now uint64, reason event.Reason) (count int) {
	s.saveSurvivors(set, only)
	var regions [event.BankedRegions]bool
	for c := range set.callSites(only) {
		if c.live.Count == 0 {
			continue
		}
		c.change() // before the totals change
		count += int(c.live.Count)
		regions[c.Region] = true
		p.count(c, c.live, reason)
		p.add(c, c.live.Negative())
		c.clear()
		c.unloadCores()
	}
	for region, any := range regions {
		if any {
			for _, q := range set.pools[region] {
				q.Shrank(now)
			}
		}
	}
	return count
}
