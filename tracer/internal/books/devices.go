package books

import (
	"cmp"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/quota"
)

// maxDevices bounds how many devices are kept for a process, closed ones included.
const maxDevices = 4096

// Causes of losses of devices.
const (
	badChip        = "id of a chip not plausible"
	manyDevices    = "too many devices"
	manyAllocators = "too many allocators"
)

type device struct {
	chips []int
	mesh  bool
}

type allocator struct {
	device *device
	banks  [event.BankedRegions]heap.Bank
}

func (b *Books) clear(e *event.Event, _ *libraries.Library, r *bpf.KernelClearRecord) {
	if b.changes != nil && !b.changes.Full() {
		b.changes.allocators[r.Allocator] = true
	}
	if b.allocators[r.Allocator] == nil {
		return // its allocator never allocated
	}
	e.TimeNs = max(e.TimeNs, b.ReadNs) // not before the buffers that were read from memory
	b.closeDevice(*e, r.Allocator)
}

// closeDevice reports the end of a device's allocator.
func (b *Books) closeDevice(e event.Event, allocator uint64) {
	of := b.allocators[allocator].device
	e.Kind, e.Allocator, e.Devices, e.Mesh = event.DeviceClose, allocator, of.chips, of.mesh
	delete(b.allocators, allocator)
	if b.room.Spend(b.Sharer, len(b.Live), e.TimeNs) {
		for object, one := range b.Live {
			if one.allocator == allocator {
				b.dropLive(object, one)
			}
		}
	} else {
		b.process.Lost(quota.Beyond)
	}
	b.Peaks = b.bytes
	b.fits(0)
	b.process.Emit(&e)
	b.endRuntimeKernels(event.Event{TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Reason: event.ReasonDeviceClose})
}

func (b *Books) device(e *event.Event, _ *libraries.Library, r *bpf.KernelDeviceRecord) {
	dev := &device{mesh: r.H.Flags&bpf.DeviceMesh != 0}
	for _, chip := range r.Chips[:min(int(r.H.Count), len(r.Chips))] {
		switch {
		case chip < 0: // a chip of another host
		case chip >= heap.MaxChips:
			b.process.Lost(badChip)
		default:
			dev.chips = append(dev.chips, int(chip))
		}
	}
	if b.devices[r.Device] == nil && len(b.devices) >= maxDevices {
		b.process.Lost(manyDevices)
		return
	}
	b.addDevice(r.Device, r.Impl, dev)
	if r.Allocator == 0 {
		return
	}
	if b.allocators[r.Allocator] == nil && len(b.allocators) >= heap.MaxAllocators {
		b.process.Lost(manyAllocators)
		return
	}
	a := &allocator{device: dev}
	for i, info := range r.Banks {
		a.banks[i] = heap.BankOf(info)
	}
	known := b.allocators[r.Allocator]
	b.allocators[r.Allocator] = a
	if known != nil && r.H.Flags&bpf.DeviceReady == 0 && known.banks == a.banks && slices.Equal(known.device.chips, dev.chips) {
		return // it was read from the process's memory before
	}
	shrunk := func(a, b heap.Bank) int { return cmp.Compare(a.ShrunkBytes, b.ShrunkBytes) }
	if known != nil && r.H.Flags&bpf.DeviceReady == 0 && slices.CompareFunc(known.banks[:], a.banks[:], shrunk) != 0 {
		e.Cause = causeSubDevices
	}
	b.openDevice(*e, r.Allocator, a, false)
}

// addDevice adds a device. impl is its MeshDeviceImpl, which traces are captured on; 0: none.
func (b *Books) addDevice(address, impl uint64, dev *device) {
	b.devices[address] = dev
	if impl != 0 && len(b.impls) < maxDevices {
		b.impls[impl] = address
	}
}

// causeSubDevices is the Cause of a DeviceOpen with new sizes.
const causeSubDevices = "sub-device manager"

// changeBanks reports that a region of an allocator becomes smaller, or gets its first size again.
func (b *Books) changeBanks(e *event.Event, _ *libraries.Library, r *bpf.KernelBanksRecord) {
	if b.allocators[r.Allocator] == nil || int(r.Type) >= event.BankedRegions {
		return // it will be read when it allocates
	}
	changed := *b.allocators[r.Allocator]
	bank := &changed.banks[r.Type]
	before := bank.ShrunkBytes
	if r.H.Flags&bpf.BanksShrink == 0 {
		bank.Shrink(0)
	} else if r.Bytes < bank.BytesPerBank { // else the library refuses it
		bank.Shrink(before + r.Bytes)
	}
	if bank.ShrunkBytes == before {
		return
	}
	b.allocators[r.Allocator] = &changed
	e.Cause = causeSubDevices
	b.openDevice(*e, r.Allocator, &changed, false)
}

// openDevice reports a device with an allocator.
func (b *Books) openDevice(e event.Event, address uint64, a *allocator, before bool) {
	e.Kind, e.BeforeAttach = event.DeviceOpen, before
	e.Devices, e.Allocator, e.Mesh = a.device.chips, address, a.device.mesh
	e.Open = &event.Open{Board: b.process.Board(a.device.chips)}
	for i, bank := range a.banks {
		e.Open.Capacities[i] = event.Capacity{Banks: bank.Banks, BytesPerBank: bank.BytesPerBank, Base: bank.Base}
	}
	b.process.Emit(&e)
}

// AreNeeded reports whether later records depend on those of a kind: reading the process's memory again does not give them
// back.
func AreNeeded(kind uint8) bool {
	return kind == bpf.RecordDevice || kind == bpf.RecordClear || kind == bpf.RecordBanks
}
