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
func (d *decoder) allocPerCore(e event.Event, r *bpf.KernelPerCoreRecord) {
	e.PerCore = true
	d.alloc(e, &r.Buffer, r.Cores[:min(int(r.Buffer.H.Count), len(r.Cores))])
}

// alloc decodes an allocation. cores are set for a buffer on single cores.
func (d *decoder) alloc(e event.Event, r *bpf.KernelBufferRecord, cores []bpf.KernelCoreAddress) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown(e.PID, "library not known")
		return
	}
	p := d.start(&e, lib)
	if late := d.host.lateOf(e.PID); late != nil && e.TimeNs < late.sinceNs {
		return
	}
	if p.allocators[r.Allocator] == nil && len(p.allocators) >= heap.MaxAllocators {
		d.unknown(e.PID, "too many allocators")
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
		d.unknown(e.PID, unknownType)
		return
	}
	d.place(&e, p, r.Device, r.Allocator, r.Request)
	if e.PerCore {
		setCores(&e, cores)
	}
	if old, ok := p.live[r.Object]; ok && old.id != r.UniqueId { // its free was not seen
		d.endLost(event.Event{TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm, Reread: true}, p, r.Object, old)
	}
	if !d.fits(e.PID, p, 1) {
		return
	}
	p.live[r.Object] = liveBufferOf(&e)
	p.recovery.touch(r.Object)
	d.emit(e)
}

// fits counts what a process has, with more buffers or programs, and counts a loss if that is beyond the
// limit of its user.
func (d *decoder) fits(pid int, p *traced, more int) bool {
	fits := p.share.Hold(d.room, host.Sharer(p.user, pid), len(p.live)+quota.Program*len(p.programs)+more)
	if !fits {
		d.unknown(pid, quota.Beyond)
	}
	return fits
}

// chips returns the chips of a process's device, which was reported before its buffers.
func (d *decoder) chips(pid int, p *traced, address uint64) []int {
	dev := p.devices[address]
	if dev == nil {
		d.unknown(pid, "device not known")
		return nil
	}
	return dev.chips
}

// place sets the chips of a buffer and the memory that it takes in their banks, where these are
// known.
func (d *decoder) place(e *event.Event, p *traced, dev, alloc uint64, r bpf.KernelShardRequest) {
	e.Devices = d.chips(e.PID, p, dev)
	a := p.allocators[alloc]
	if a == nil {
		d.unknown(e.PID, "allocator not known")
		return
	}
	if e.Layout.Sharded() && r.Shards == 0 {
		d.unknown(e.PID, "shards not seen")
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

func (d *decoder) free(e event.Event, r *bpf.KernelFreeRecord) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown(e.PID, "library not known")
		return
	}
	e.Kind, e.Reason = event.Free, event.ReasonExplicit
	if late := d.host.lateOf(e.PID); late != nil {
		late.free(r.Object)
	}
	p := d.processes[e.PID]
	if p == nil {
		return // a forked child frees what it inherited
	}
	p.recovery.touch(r.Object)
	b, known := p.live[r.Object]
	if !known {
		return // allocated before the attach, a view, or freed when its device was closed
	}
	d.start(&e, lib)
	delete(p.live, r.Object)
	d.fits(e.PID, p, 0)
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
