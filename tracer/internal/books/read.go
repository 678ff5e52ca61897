package books

// This file takes what was read from the memory of a process: after a late attach, and after a loss.

import (
	"maps"
	"slices"

	"ttmem/tracer/event"
	"ttmem/tracer/internal/heap"
)

// A Reading is what was read of a process.
type Reading struct {
	Devices []heap.Device
	Buffers []heap.Buffer
	Closed  []uint64 // allocators of Allocators that no longer exist
	// MadeNone is true if the process had made no Buffer.
	MadeNone bool
}

// AddExisting reports what a late attach read, except for what changed meanwhile. e has the time of the
// events.
func (b *Books) AddExisting(e event.Event, r *Reading) {
	b.ReadNs, b.early = e.TimeNs, 0
	b.Missed = b.Missed && !r.MadeNone
	if b.readIDs == nil {
		b.readIDs = make(map[uint64]uint64)
	}
	for i := range r.Buffers {
		b.readIDs[r.Buffers[i].Object] = r.Buffers[i].ID
	}
	e.BeforeAttach = true
	b.add(e, r)
	b.runtimeKernels(e, r.Devices)
}

// Allocators are those that are known, for a Reading.
func (b *Books) Allocators() []uint64 { return slices.Collect(maps.Keys(b.allocators)) }

// Corrects reports whether the changes that were followed and a Reading say all about the buffers.
// Otherwise the memory of a sharded buffer in its banks or cores is known neither from its events nor from
// the Reading.
func (b *Books) Corrects(r *Reading) bool {
	if b.changes == nil || b.changes.Full() {
		return false
	}
	return !slices.ContainsFunc(r.Buffers, func(read heap.Buffer) bool {
		if read.BytesPerBank != 0 || !read.Layout.Sharded() && !read.PerCore || b.changes.changed(read.Object, read.Allocator) {
			return false
		}
		known, ok := b.Live[read.Object]
		return !(ok && known.ID == read.ID && known.complete) && !b.inherited(&read)
	})
}

// Correct reports what differs from a Reading, except for what changed meanwhile. With programs, those
// without events since beganNs end: they are reported when they run next.
func (b *Books) Correct(e event.Event, r *Reading, programs bool, beganNs uint64) {
	b.ReadNs, b.early, e.Reread = e.TimeNs, 0, true
	for _, a := range r.Closed {
		if b.allocators[a] != nil && !b.changes.allocators[a] {
			b.closeDevice(e, a)
		}
	}
	found := make(map[uint64]uint64, len(r.Buffers))
	for i := range r.Buffers {
		found[r.Buffers[i].Object] = r.Buffers[i].ID
	}
	for object, live := range b.Live {
		if b.changes.changed(object, live.allocator) {
			continue // its events are right
		}
		if id, ok := found[object]; !ok || id != live.ID || !live.complete {
			b.endLost(e, object, live)
		}
	}
	b.add(e, r)
	if programs {
		for id, g := range b.programs {
			if g.timeNs < beganNs {
				b.endProgram(e, id, g.holds)
			}
		}
		b.runtimeKernels(e, r.Devices) // these never run again
	}
}

// add reports unknown devices and buffers that were read, except those that changed. e says how they were
// found.
func (b *Books) add(e event.Event, r *Reading) {
	for _, dev := range r.Devices {
		if b.devices[dev.Address] == nil {
			b.addDevice(dev.Address, dev.Impl, &device{chips: dev.Chips, mesh: dev.Mesh})
		}
		if dev.Allocator == 0 || b.allocators[dev.Allocator] != nil || b.changes.allocators[dev.Allocator] {
			continue
		}
		own := func(read heap.Buffer) bool { return read.Allocator == dev.Allocator && !b.inherited(&read) }
		if b.ancestor(func(a *Books) bool { return a.allocators[dev.Allocator] != nil }) && !slices.ContainsFunc(r.Buffers, own) {
			continue // the process is a fork, and the device is its parent's
		}
		b.allocators[dev.Allocator] = &allocator{device: b.devices[dev.Address], banks: dev.Banks}
		b.openDevice(e, dev.Allocator, b.allocators[dev.Allocator], e.BeforeAttach)
	}
	for i := range r.Buffers {
		read := &r.Buffers[i]
		_, known := b.Live[read.Object]
		a := b.allocators[read.Allocator]
		if known || a == nil || b.changes.changed(read.Object, read.Allocator) || b.inherited(read) {
			continue
		}
		alloc := read.Event()
		alloc.TimeNs, alloc.PID, alloc.TID = e.TimeNs, e.PID, e.TID
		alloc.Devices, alloc.BeforeAttach, alloc.Reread = a.device.chips, e.BeforeAttach, e.Reread
		if own := b.devices[read.Device]; own != nil {
			alloc.Devices = own.chips // a submesh has fewer chips than its allocator
		}
		if b.fits(1) {
			b.addLive(read.Object, bufferOf(&alloc))
			b.process.Emit(&alloc)
		}
	}
}
