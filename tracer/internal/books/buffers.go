package books

import (
	"cmp"
	"math"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/libraries"
)

// A Buffer is what the free of an allocated buffer needs.
type Buffer struct {
	ID, allocator uint64
	place
	before   bool // it was allocated before the attach
	read     bool // it was read from the process's memory: no event reported it
	complete bool // its chips, and the bytes on each, are known
	bytes    uint64
}

// A place is where a buffer begins; its address is 0 if that is not known.
type place struct {
	address uint64
	region  event.Region
}

// key identifies a place in Books.places.
func (p place) key() uint64 { return p.address<<8 | uint64(p.region) }

// bufferOf is the buffer of an Alloc.
func bufferOf(e *event.Event) Buffer {
	return Buffer{
		ID: e.BufferID, allocator: e.Allocator, place: place{e.Address, e.Region}, before: e.BeforeAttach, read: e.BeforeAttach || e.Reread,
		complete: e.Devices != nil && e.BytesPerBank != 0 && e.Banks != 0,
		bytes:    e.BytesPerBank * uint64(e.Banks) * uint64(len(e.Devices)),
	}
}

// addLive adds a buffer to those that are live; there is none at the same address.
func (b *Books) addLive(object uint64, one Buffer) {
	b.Live[object] = one
	if b.places != nil {
		b.places[one.key()] = object
	}
	b.bytes[one.region] += one.bytes
	b.Peaks[one.region] = max(b.Peaks[one.region], b.bytes[one.region])
}

// dropLive removes a live buffer.
func (b *Books) dropLive(object uint64, one Buffer) {
	b.bytes[one.region] -= one.bytes
	delete(b.Live, object)
	if b.places != nil && b.places[one.key()] == object {
		delete(b.places, one.key())
	}
}

// allocPerCore decodes the allocation of a buffer on single cores.
func (b *Books) allocPerCore(e *event.Event, l *libraries.Library, r *bpf.KernelPerCoreRecord) {
	e.PerCore = true
	b.allocOn(e, l, &r.Buffer, r.Cores[:min(int(r.Buffer.H.Count), len(r.Cores))])
}

// alloc decodes an allocation.
func (b *Books) alloc(e *event.Event, l *libraries.Library, r *bpf.KernelBufferRecord) {
	b.allocOn(e, l, r, nil)
}

// allocOn decodes an allocation. cores are set for a buffer on single cores.
func (b *Books) allocOn(e *event.Event, l *libraries.Library, r *bpf.KernelBufferRecord, cores []bpf.KernelCoreAddress) {
	if l == nil {
		b.process.Lost(unknownLibrary)
		return
	}
	if b.firstID == 0 || r.UniqueId < b.firstID {
		b.firstID = r.UniqueId
	}
	if len(b.allocators) >= heap.MaxAllocators && b.allocators[r.Allocator] == nil {
		b.process.Lost(manyAllocators)
		return
	}
	e.Kind = event.Alloc
	e.Stack = b.stacks.Stack(r.H.Stack)
	e.Object, e.BufferID, e.Allocator = r.Object, r.UniqueId, r.Allocator
	hooked := l.Fill(e, r.Window[:])
	switch {
	case hooked || e.SizeBytes == 0:
		return
	case int(e.Region) >= event.BankedRegions:
		b.process.Lost(UnknownType)
		return
	}
	if at := l.AttachedNs.Load(); at == 0 || e.TimeNs < at {
		b.early++ // it is read from memory: its free may have been missed, as not all probes were in place
		return
	}
	b.place(e, r.Device, r.Allocator, r.Request)
	if e.PerCore {
		setCores(e, cores)
	}
	old, known := b.Live[r.Object]
	if known && old.ID != r.UniqueId { // its free was not seen
		b.endLost(event.Event{TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Reread: true}, r.Object, old)
		known = false
	}
	if !b.fits(1) {
		return
	}
	if known { // it was read before
		b.dropLive(r.Object, old)
	}
	b.addLive(r.Object, bufferOf(e))
	b.touch(r.Object)
	b.process.Emit(e)
}

// Causes of losses of figures of buffers.
const (
	noDevice    = "device not known"
	noAllocator = "allocator not known"
	noShards    = "shards not seen"
)

// chips returns the chips of a process's device, which was reported before its buffers.
func (b *Books) chips(address uint64) []int {
	dev := b.devices[address]
	if dev == nil {
		b.process.Lost(noDevice)
		return nil
	}
	return dev.chips
}

// place sets the chips of a buffer and the memory that it takes in their banks, where these are
// known.
func (b *Books) place(e *event.Event, dev, alloc uint64, r bpf.KernelShardRequest) {
	e.Devices = b.chips(dev)
	a := b.allocators[alloc]
	if a == nil {
		b.process.Lost(noAllocator)
		return
	}
	if e.Layout.Sharded() && r.Shards == 0 {
		b.process.Lost(noShards)
		return
	}
	bank := &a.banks[e.Region]
	if e.Kind == event.AllocFailed {
		e.Banks, e.BytesPerBank = bank.RequestedPerBank(e.SizeBytes, e.PageSizeBytes, r)
	} else {
		e.Banks, e.BytesPerBank = bank.AllocatedPerBank(e.SizeBytes, e.PageSizeBytes, r)
	}
}

// setCores sets the cores of a buffer on single cores; none if they could not be read. The
// library allocated on one core at a time.
func setCores(e *event.Event, list []bpf.KernelCoreAddress) {
	slices.SortFunc(list, func(a, b bpf.KernelCoreAddress) int {
		return cmp.Or(cmp.Compare(a.Y, b.Y), cmp.Compare(a.X, b.X))
	})
	e.Banks, e.Address = uint32(len(list)), 0
	for _, c := range list {
		x, y := uint16(c.X), uint16(c.Y)
		if last := len(e.Cores) - 1; last >= 0 && e.Cores[last].Y0 == y && e.Cores[last].X1+1 == x {
			e.Cores[last].X1 = x
		} else {
			e.Cores = append(e.Cores, event.CoreRange{X0: x, Y0: y, X1: x, Y1: y})
		}
	}
	if !slices.ContainsFunc(list, func(c bpf.KernelCoreAddress) bool { return c.Address != list[0].Address }) && len(list) > 0 {
		e.Address = list[0].Address
	}
}

func (b *Books) free(e *event.Event, l *libraries.Library, r *bpf.KernelFreeRecord) {
	if l == nil {
		b.process.Lost(unknownLibrary)
		return
	}
	b.touch(r.Object)
	freed, known := b.Live[r.Object]
	if !known {
		return // allocated before the attach, a view, or freed when its device was closed
	}
	b.ended(e, r.Object, freed)
	e.Stack = b.stacks.Stack(r.H.Stack)
	e.SizeBytes, e.PageSizeBytes, e.Address = r.SizeBytes, r.PageSizeBytes, r.Address
	heap.SetType(e, r.Type, r.Sharding)
	if r.H.Flags&(bpf.FreeHooked|bpf.FreeView) == 0 && e.SizeBytes != 0 {
		b.process.Emit(e)
	}
}

// endLost reports a buffer whose free was lost.
func (b *Books) endLost(e event.Event, object uint64, lost Buffer) {
	b.lost = e
	b.ended(&b.lost, object, lost)
	b.process.Emit(&b.lost)
}

// ended removes a buffer, and makes the event that of its free.
func (b *Books) ended(e *event.Event, object uint64, of Buffer) {
	b.dropLive(object, of)
	b.fits(0)
	e.Kind, e.Reason, e.Object, e.BufferID, e.Allocator = event.Free, event.ReasonExplicit, object, of.ID, of.allocator
	if e.Region, e.BeforeAttach = of.region, of.before; of.read {
		e.TimeNs = max(e.TimeNs, b.ReadNs)
	}
	if a := b.allocators[of.allocator]; a != nil {
		e.Devices = a.device.chips
	}
}

// objectAt returns the address of the Buffer at a place, of several the newest; 0 if none is live there.
func (b *Books) objectAt(at place) uint64 {
	if b.places == nil {
		b.places = make(map[uint64]uint64, len(b.Live))
		for object, one := range b.Live {
			if b.Live[b.places[one.key()]].ID <= one.ID {
				b.places[one.key()] = object
			}
		}
	}
	return b.places[at.key()]
}

// transferred reports that the host writes or reads a buffer, itself or through a view. Buffers that are not known are not
// reported.
func (b *Books) transferred(e *event.Event, _ *libraries.Library, r *bpf.KernelTransferRecord) {
	object, at := r.Object, place{r.Address, event.Region(min(r.Type, math.MaxUint8))}
	live, known := b.Live[object]
	if at.address != 0 && (!known || live.address != 0 && live.place != at) { // a view
		object = b.objectAt(at)
		live, known = b.Live[object]
	}
	if !known {
		return
	}
	if e.Kind = event.BufferWrite; r.H.Flags&bpf.TransferRead != 0 {
		e.Kind = event.BufferRead
	}
	e.Object, e.BufferID, e.Region = object, live.ID, live.region
	e.Stack = b.stacks.Stack(r.H.Stack)
	if a := b.allocators[live.allocator]; a != nil {
		e.Devices = a.device.chips
	}
	b.process.Emit(e)
}
