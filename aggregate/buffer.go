package aggregate

import (
	"math"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
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
		t.PerBank = 0 // changeCores counts it
	}
	return t
}

// bytes returns the bytes that the buffer occupies on all chips.
func (b *buffer) bytes() uint64 { return b.AllocatedBytes() * b.Chips() }

func (p *process) alloc(e *event.Event) {
	s := p.state
	if old := p.buffers.Get(e.BufferID); old != nil {
		s.anomalies.ReplacedBuffers++
		p.died(old, e.TimeNs, event.ReasonExplicit) // its free was lost
	}
	if len(e.Devices) == 0 {
		s.anomalies.UnplacedBuffers++
	}
	site := p.site(p.arena(p.set(e.Devices), e.Allocator), memory.Site{
		Region: e.Region, Layout: e.Layout, BeforeAttach: e.BeforeAttach, PerCore: e.PerCore && e.Region == event.L1, Stack: e.Stack,
	})
	if site == nil || !p.hold(1) {
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
				p.beyond()
			}
		}
	}
	p.born(b)
}

// free ends a buffer. It subtracts the size that the allocation had, not that of the event.
func (p *process) free(e *event.Event) {
	b := p.buffers.Get(e.BufferID)
	if b == nil {
		p.state.anomalies.RepeatedFrees++
		return
	}
	p.freed.add(b, e)
	p.died(b, e.TimeNs, e.Reason)
	p.freedAt(b, e)
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

// include adds a buffer to the totals of the process and its chips, and returns the chips on which other
// allocators assigned some of its addresses.
func (p *process) include(b *buffer, restoring bool) (shared []*chip) {
	b.changeCores((*cores.Load).Add, 1)
	p.add(b.callSite, b.tally())
	p.placeUse(b)
	return p.cover(b, restoring)
}

// exclude undoes include.
func (p *process) exclude(b *buffer, reason event.Reason) {
	if reason.IsEnd() {
		p.count(b.callSite, b.tally(), reason)
	}
	b.changeCores((*cores.Load).Remove, -1)
	b.uncover()
	p.endUse(b)
	p.add(b.callSite, b.tally().Negative())
}

// excludeAll undoes include for all buffers of a call site, except for their addresses.
func (p *process) excludeAll(c *callSite, reason event.Reason) {
	p.count(c, c.live, reason)
	p.add(c, c.live.Negative())
	c.ended.Add(c.live.Amount)
	c.live, c.fresh = memory.Tally{}, memory.Amount{}
	c.unloadCores()
}
