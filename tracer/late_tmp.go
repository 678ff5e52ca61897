package tracer

// Temporary: whoever writes late_buffers.go deletes this file.

import (
	"context"

	"ttmem/tracer/event"
)

type lateDevice struct {
	address   uint64
	mesh      bool
	chips     []int
	allocator uint64
	banks     [event.BankedRegions]bank
}

type lateBuffer struct {
	object, id, device, allocator uint64
	event                         event.Event
}

func (l *library) readLate(ctx context.Context, pid int, bias uint64, found func(lateDevice, []lateBuffer)) error {
	return nil
}
