package tracer

import (
	"cmp"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/quota"
)

// allocPerCore decodes the allocation of a buffer on single cores.
func (d *decoder) allocPerCore(p *process, e event.Event, r *bpf.KernelPerCoreRecord) {
	e.PerCore = true
	d.alloc(p, e, &r.Buffer, r.Cores[:min(int(r.Buffer.H.Count), len(r.Cores))])
}

// alloc decodes an allocation. cores are set for a buffer on single cores.
func (d *decoder) alloc(p *process, e event.Event, r *bpf.KernelBufferRecord, cores []bpf.KernelCoreAddress) {
	lib := d.libraryOf(p, r.H.Library)
	if lib == nil {
		d.unknown(p, "library not known")
		return
	}
	d.start(p, &e)
	if p.firstID == 0 || r.UniqueId < p.firstID {
		p.firstID = r.UniqueId
	}
	if at := lib.AttachedNs.Load(); at == 0 || e.TimeNs < at {
		return // it is read from memory: its free may have been missed, as not all probes were in place
	}
	if p.allocators[r.Allocator] == nil && len(p.allocators) >= heap.MaxAllocators {
		d.unknown(p, "too many allocators")
		return
	}
	e.Kind = event.Alloc
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.Object, e.BufferID, e.Allocator = r.Object, r.UniqueId, r.Allocator
	hooked := lib.Fill(&e, r.Window[:])
	switch {
	case hooked || e.SizeBytes == 0:
		return
	case int(e.Region) >= event.BankedRegions:
		d.unknown(p, unknownType)
		return
	}
	d.place(&e, p, r.Device, r.Allocator, r.Request)
	if e.PerCore {
		setCores(&e, cores)
	}
	if old, ok := p.live[r.Object]; ok && old.id != r.UniqueId { // its free was not seen
		d.endLost(event.Event{TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm, Reread: true}, p, r.Object, old)
	}
	if !d.fits(p, 1) {
		return
	}
	p.live[r.Object] = liveBufferOf(&e)
	p.recovery.touch(r.Object)
	d.emit(e)
}

// fits counts what a process has, with more buffers or programs, and counts a loss if that is beyond the
// limit of its user.
func (d *decoder) fits(p *process, more int) bool {
	fits := p.share.Hold(d.room, host.Sharer(p.user, p.PID), len(p.live)+quota.Program*len(p.programs)+more)
	if !fits {
		d.unknown(p, quota.Beyond)
	}
	return fits
}

// chips returns the chips of a process's device, which was reported before its buffers.
func (d *decoder) chips(p *process, address uint64) []int {
	dev := p.devices[address]
	if dev == nil {
		d.unknown(p, "device not known")
		return nil
	}
	return dev.chips
}

// place sets the chips of a buffer and the memory that it takes in their banks, where these are
// known.
func (d *decoder) place(e *event.Event, p *process, dev, alloc uint64, r bpf.KernelShardRequest) {
	e.Devices = d.chips(p, dev)
	a := p.allocators[alloc]
	if a == nil {
		d.unknown(p, "allocator not known")
		return
	}
	if e.Layout.Sharded() && r.Shards == 0 {
		d.unknown(p, "shards not seen")
		return
	}
	b := &a.banks[e.Region]
	if e.Kind == event.AllocFailed {
		e.Banks, e.BytesPerBank = b.RequestedPerBank(e.SizeBytes, e.PageSizeBytes, r)
	} else {
		e.Banks, e.BytesPerBank = b.AllocatedPerBank(e.SizeBytes, e.PageSizeBytes, r)
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

func (d *decoder) free(p *process, e event.Event, r *bpf.KernelFreeRecord) {
	lib := d.libraryOf(p, r.H.Library)
	if lib == nil {
		d.unknown(p, "library not known")
		return
	}
	e.Kind, e.Reason = event.Free, event.ReasonExplicit
	if p.late != nil {
		p.late.free(r.Object)
	}
	p.recovery.touch(r.Object)
	b, known := p.live[r.Object]
	if !known {
		return // allocated before the attach, a view, or freed when its device was closed
	}
	d.start(p, &e)
	delete(p.live, r.Object)
	d.fits(p, 0)
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.Object, e.BufferID, e.Allocator = r.Object, b.id, b.allocator
	if e.BeforeAttach = b.before; b.read {
		e.TimeNs = max(e.TimeNs, p.lateNs)
	}
	e.SizeBytes, e.PageSizeBytes, e.Address = r.SizeBytes, r.PageSizeBytes, r.Address
	heap.SetType(&e, r.Type, r.Sharding)
	if r.H.Flags&(bpf.FreeHooked|bpf.FreeView) != 0 || e.SizeBytes == 0 {
		return
	}
	if a := p.allocators[e.Allocator]; a != nil {
		e.Devices = a.device.chips
	}
	d.emit(e)
}
