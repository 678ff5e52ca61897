package tracer

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
)

// maxDevices bounds how many devices are kept for a process, closed ones included.
const maxDevices = 4096

func (d *decoder) clear(p *process, e event.Event, r *bpf.KernelClearRecord) {
	if p.late != nil {
		p.late.cleared[r.Allocator] = true
	}
	p.recovery.clear(r.Allocator)
	if p.allocators[r.Allocator] == nil {
		return // its allocator never allocated
	}
	d.begin(p, &e, &r.H)
	e.TimeNs = max(e.TimeNs, p.lateNs) // not before the buffers that were read from memory
	d.closeDevice(e, p, r.Allocator)
}

// closeDevice reports the end of a device's allocator.
func (d *decoder) closeDevice(e event.Event, p *process, allocator uint64) {
	of := p.allocators[allocator].device
	e.Kind, e.Allocator, e.Devices, e.Mesh = event.DeviceClose, allocator, of.chips, of.mesh
	delete(p.allocators, allocator)
	maps.DeleteFunc(p.live, func(_ uint64, b liveBuffer) bool { return b.allocator == allocator })
	d.fits(p, 0)
	d.emit(e)
	d.endRuntimeKernels(event.Event{TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm, Reason: event.ReasonDeviceClose}, p)
}

func (d *decoder) device(p *process, e event.Event, r *bpf.KernelDeviceRecord) {
	d.begin(p, &e, &r.H)
	dev := &device{mesh: r.H.Flags&bpf.DeviceMesh != 0}
	for _, chip := range r.Chips[:min(int(r.H.Count), len(r.Chips))] {
		switch {
		case chip < 0: // a chip of another host
		case chip >= heap.MaxChips:
			d.unknown(p, "id of a chip not plausible")
		default:
			dev.chips = append(dev.chips, int(chip))
		}
	}
	if p.devices[r.Device] == nil && len(p.devices) >= maxDevices {
		d.unknown(p, "too many devices")
		return
	}
	p.addDevice(r.Device, r.Impl, dev)
	if r.Allocator == 0 {
		return
	}
	if p.allocators[r.Allocator] == nil && len(p.allocators) >= heap.MaxAllocators {
		d.unknown(p, "too many allocators")
		return
	}
	a := &allocator{device: dev}
	for i, info := range r.Banks {
		a.banks[i] = heap.BankOf(info)
	}
	known := p.allocators[r.Allocator]
	p.allocators[r.Allocator] = a
	if known != nil && r.H.Flags&bpf.DeviceReady == 0 && known.banks == a.banks && slices.Equal(known.device.chips, dev.chips) {
		return // it was read from the process's memory before
	}
	shrunk := func(a, b heap.Bank) int { return cmp.Compare(a.ShrunkBytes, b.ShrunkBytes) }
	if known != nil && r.H.Flags&bpf.DeviceReady == 0 && slices.CompareFunc(known.banks[:], a.banks[:], shrunk) != 0 {
		e.Cause = causeSubDevices
	}
	d.openDevice(e, r.Allocator, a, false)
}

// addDevice adds a device. impl is its MeshDeviceImpl, which traces are captured on; 0: none.
func (p *process) addDevice(address, impl uint64, dev *device) {
	p.devices[address] = dev
	if impl != 0 && len(p.impls) < maxDevices {
		p.impls[impl] = address
	}
}

// causeSubDevices is the Cause of a DeviceOpen with new sizes.
const causeSubDevices = "sub-device manager"

// changeBanks reports that a region of an allocator becomes smaller, or gets its first size again.
func (d *decoder) changeBanks(p *process, e event.Event, r *bpf.KernelBanksRecord) {
	if p.allocators[r.Allocator] == nil || int(r.Type) >= event.BankedRegions {
		return // it will be read when it allocates
	}
	changed := *p.allocators[r.Allocator]
	b := &changed.banks[r.Type]
	before := b.ShrunkBytes
	if r.H.Flags&bpf.BanksShrink == 0 {
		b.Shrink(0)
	} else if r.Bytes < b.BytesPerBank { // else the library refuses it
		b.Shrink(before + r.Bytes)
	}
	if b.ShrunkBytes == before {
		return
	}
	d.begin(p, &e, &r.H)
	p.allocators[r.Allocator] = &changed
	e.Cause = causeSubDevices
	d.openDevice(e, r.Allocator, &changed, false)
}

// openDevice reports a device with an allocator.
func (d *decoder) openDevice(e event.Event, address uint64, a *allocator, before bool) {
	e.Kind, e.BeforeAttach = event.DeviceOpen, before
	e.Devices, e.Allocator, e.Mesh = a.device.chips, address, a.device.mesh
	e.Board = host.BoardName(a.device.chips)
	for i, b := range a.banks {
		e.Capacities[i] = event.Capacity{Banks: b.Banks, BytesPerBank: b.BytesPerBank, Base: b.Base}
	}
	d.emit(e)
}
