package books

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/libraries"
)

// exception takes an exception of the library. It is reported once it is known to have left the
// library.
func (b *Books) exception(e *event.Event, l *libraries.Library, r *bpf.KernelFailedRecord) {
	e.Message = unix.ByteSliceToString(r.Message[:])
	e.Stack = b.stacks.Stack(r.H.Stack)
	limits, ok := event.LimitsIn(e.Message)
	switch {
	case !ok:
		e.Kind, e.Reason = event.OperationFailed, event.ReasonOther
	case limits.Reason == event.ReasonOutOfMemory:
		e.Kind, e.Reason = event.AllocFailed, limits.Reason
		b.setRequested(e, l, limits, r)
	default:
		e.Kind, e.Reason, e.Region, e.StaticKind = event.AllocFailed, limits.Reason, limits.Region, limits.Static
		if e.Region == event.CB || e.Region == event.Kernel { // of the program that was just enqueued
			e.ProgramID, e.Devices = r.ProgramId, b.chips(r.Device)
			e.Stack = b.operationStack(e, r.H.Stack)
		}
	}
	if e.Devices == nil {
		b.setOnlyAllocator(e)
	}
	b.throw(thrown{exception: r.Exception, sinceNs: e.TimeNs, event: *e})
}

// setRequested sets the requested size: that of the newest Buffer on the stack that matches the
// message, or else the one in the message.
func (b *Books) setRequested(e *event.Event, l *libraries.Library, requested event.Limits, r *bpf.KernelFailedRecord) {
	known := requested.SizeBytes > 0
	found := -1
	var best event.Event
	for i := range r.Buffers {
		buffer := &r.Buffers[i]
		one := *e
		one.Object, one.BufferID = buffer.Object, buffer.UniqueId
		if buffer.Object == 0 || l == nil {
			break
		}
		l.Fill(&one, buffer.Window[:])
		one.PerCore = buffer.PerCore == 1
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
		e.Allocator = word(l.Kernel.Allocator)
		b.place(e, word(l.Kernel.Device), e.Allocator, r.Request)
		return
	}
	e.SizeBytes, e.Region, e.Banks, e.BytesPerBank = requested.SizeBytes, requested.Region, requested.Banks, requested.BytesPerBank
}

// setOnlyAllocator sets the allocator of an event, and its chips, if the process has no other.
func (b *Books) setOnlyAllocator(e *event.Event) {
	if len(b.allocators) == 1 {
		for at, a := range b.allocators {
			e.Allocator, e.Devices = at, a.device.chips
		}
	}
}
