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
	if old := p.buffers[e.BufferID]; old != nil {
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
	p.buffers[b.id] = b
	p.held[b.region].add(b)
	for _, c := range b.set.chips {
		for _, u := range c.both() {
			u.add(b, c.chip, e.TimeNs)
		}
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
	b := p.buffers[e.BufferID]
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
	delete(p.buffers, b.id)
	p.held[b.region].remove(b)
	for _, c := range b.set.chips {
		for _, u := range c.both() {
			u.remove(b)
		}
	}
}

type leftKey struct {
	region event.Region
	reason event.Reason
}

// leave notes a buffer that nobody freed.
func (p *process) leave(b *buffer, reason event.Reason) {
	k := leftKey{b.region, reason}
	l := p.left[k]
	if l == nil {
		l = &Left{Region: b.region.String(), Reason: reason.String()}
		p.left[k] = l
	}
	l.add(b)
}

func (l *Left) add(b *buffer) {
	l.Buffers++
	l.SizeBytes += b.size * uint64(len(b.set.chips))
	l.AllocatedBytes += b.allocated() * uint64(len(b.set.chips))
}

func (l *Left) remove(b *buffer) {
	l.Buffers--
	l.SizeBytes -= b.size * uint64(len(b.set.chips))
	l.AllocatedBytes -= b.allocated() * uint64(len(b.set.chips))
}
