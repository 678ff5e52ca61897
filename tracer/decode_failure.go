package tracer

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/libraries"
)

// exception takes an exception of the library. It is reported once it is known to have left the
// library.
func (d *decoder) exception(p *process, e event.Event, r *bpf.KernelFailedRecord) {
	lib := d.begin(p, &e, &r.H)
	e.Message = unix.ByteSliceToString(r.Message[:])
	e.Stack = p.stacks.Stack(r.H.Stack)
	limits, ok := event.LimitsIn(e.Message)
	switch {
	case !ok:
		e.Kind, e.Reason = event.OperationFailed, event.ReasonOther
	case limits.Reason == event.ReasonOutOfMemory:
		e.Kind, e.Reason = event.AllocFailed, limits.Reason
		d.setRequested(&e, p, lib, limits, r)
	default:
		e.Kind, e.Reason, e.Region, e.StaticKind = event.AllocFailed, limits.Reason, limits.Region, limits.Static
		if e.Region == event.CB || e.Region == event.Kernel { // of the program that was just enqueued
			e.ProgramID, e.Devices = r.ProgramId, d.chips(p, r.Device)
			e.Stack = p.operationStack(&e, r.H.Stack)
		}
	}
	if e.Devices == nil {
		p.setOnlyAllocator(&e)
	}
	p.throw(d, thrown{exception: r.Exception, sinceNs: e.TimeNs, event: e})
}

// setRequested sets the requested size: that of the newest Buffer on the stack that matches the
// message, or else the one in the message.
func (d *decoder) setRequested(e *event.Event, p *process, lib *libraries.Library, requested event.Limits, r *bpf.KernelFailedRecord) {
	known := requested.SizeBytes > 0
	found := -1
	var best event.Event
	for i := range r.Buffers {
		b := &r.Buffers[i]
		one := *e
		one.Object, one.BufferID = b.Object, b.UniqueId
		if b.Object == 0 || lib == nil {
			break
		}
		lib.Fill(&one, b.Window[:])
		one.PerCore = b.PerCore == 1
		if int(one.Region) >= event.BankedRegions || known && (one.SizeBytes != requested.SizeBytes || one.Region != requested.Region) {
			continue // an earlier one, or no Buffer
		}
		if found < 0 || known && one.BufferID > best.BufferID {
			found, best = i, one
		}
	}
	if found >= 0 {
		word := func(at uint32) uint64 { return binary.LittleEndian.Uint64(r.Buffers[found].Window[at:]) }
		*e = best
		e.Allocator = word(lib.Kernel.Allocator)
		d.place(e, p, word(lib.Kernel.Device), e.Allocator, r.Request)
		return
	}
	e.SizeBytes, e.Region, e.Banks, e.BytesPerBank = requested.SizeBytes, requested.Region, requested.Banks, requested.BytesPerBank
}

// setOnlyAllocator sets the allocator of an event, and its chips, if the process has no other.
func (p *process) setOnlyAllocator(e *event.Event) {
	if len(p.allocators) == 1 {
		for at, a := range p.allocators {
			e.Allocator, e.Devices = at, a.device.chips
		}
	}
}
