package aggregate

import (
	"ttmem/tracer/event"
)

// A buffer is one that is allocated. A million of them have to fit: mind the
// size, which is 128 bytes.
type buffer struct {
	id, object, allocator   uint64
	address, size, pageSize uint64
	perBank                 uint64
	since                   uint64
	set                     *deviceSet
	stack                   *event.Stack
	comm                    string
	tid                     int32
	banks                   uint32
	region                  event.Region
	layout                  event.Layout
	beforeAttach            bool
}

// allocated is what the buffer takes of all its banks on each chip, in bytes.
func (b *buffer) allocated() uint64 { return b.perBank * uint64(b.banks) }

func (s *State) alloc(e *event.Event) {
	if int(e.Region) >= event.BankedRegions {
		s.anomalies.MalformedEvents++
		return
	}
	p := s.process(e)
	if old := p.buffers.get(e.BufferID); old != nil {
		s.anomalies.ReplacedBuffers++
		s.drop(p, old)
	}
	if len(e.Devices) == 0 {
		s.anomalies.UnplacedBuffers++
	}
	b := &buffer{
		id: e.BufferID, object: e.Object, allocator: e.Allocator,
		address: e.Address, size: e.SizeBytes, pageSize: e.PageSizeBytes,
		perBank: e.BytesPerBank, banks: e.Banks, since: e.TimeNs,
		set: s.set(p, e.Devices), stack: e.Stack, comm: e.Comm, tid: int32(e.TID),
		region: e.Region, layout: e.Layout, beforeAttach: e.BeforeAttach,
	}
	p.buffers.put(b)
	p.held[b.region].add(b)
	b.lay()
	if b.beforeAttach {
		p.beforeAttach++
	}
	for _, c := range b.set.chips {
		c.used.add(b, c.capacities(), e.TimeNs)
		c.chip.used.add(b, &c.chip.capacities, e.TimeNs)
		if b.region == event.L1 {
			c.noteL1Peak(e.TimeNs)
		}
		c.chip.noteLevel(b.region, true)
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
	if e.Reason == event.ReasonDeviceClose || e.Reason == event.ReasonProcessExit {
		p.leave(b, e.Reason)
	}
	s.drop(p, b)
}

// drop forgets a buffer that is allocated.
func (s *State) drop(p *process, b *buffer) {
	p.buffers.remove(b)
	p.held[b.region].remove(b)
	b.lift()
	for _, c := range b.set.chips {
		for _, u := range c.both() {
			u.remove(b)
		}
		c.chip.noteLevel(b.region, false)
	}
}
