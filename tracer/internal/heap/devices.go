package heap

// This file finds the devices of a process in its memory, with their allocators.

import (
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

// Device is a device that was found in a process's memory.
type Device struct {
	Address uint64
	// Impl is the MeshDeviceImpl of a mesh; 0 if it has none.
	Impl  uint64
	Mesh  bool
	Chips []int
	// Allocator is 0 if the device's allocator is empty and no probe reports its end.
	Allocator uint64
	Banks     [event.BankedRegions]Bank
	// Runtime are the programs of its chips that are not a user's.
	Runtime []RuntimeProgram
}

// checkReadable returns an error that names a field without which existing buffers cannot
// be read.
func (l *Library) checkReadable() error {
	for _, name := range []string{
		"Allocator.allocated_buffers_", "SubDeviceManager.sub_device_allocators_",
		"SubDeviceManagerTracker.default_sub_device_manager_", "SubDeviceManagerTracker.active_sub_device_manager_",
		"MeshDevice.sub_device_manager_tracker_", "MeshDevice.devices", "Device.id_",
		"BankManager.num_banks_", "BankManager.alignment_bytes_", "BankManager.bank_size",
	} {
		if len(l.Layout.Fields[name]) == 0 {
			return l.cannotFind(name)
		}
	}
	switch {
	case l.Layout.MeshVtable == 0 || l.Layout.DeviceVtable == 0:
		return l.cannotFind("the virtual tables of Device and MeshDevice")
	case l.Layout.FreeList.Vtable == 0:
		return l.cannotFind("FreeListOpt.vtable")
	case l.Kernel.Managers[event.DRAM] == bpf.NoField || l.Kernel.Managers[event.L1] == bpf.NoField:
		return l.cannotFind("Allocator.managers")
	}
	return nil
}

// reader reads the devices and buffers of one process.
type reader struct {
	*Library
	memory *budget
	bias   uint64
	// live is the number of pointers in the sets that were read
	live int
}

func (r *reader) objects() *objects { return &objects{memory: r.memory, fields: r.Layout.Fields} }

// MaxChips and MaxAllocators reject implausible devices: ids of chips are below MaxChips, and
// neither a device nor a process has more allocators.
const (
	MaxChips      = 4096
	MaxAllocators = 256
)

// ownAllocator is the pointer in a Device to its allocator, in libraries whose Devices have
// no SubDeviceManagerTracker.
const ownAllocator = "Device.allocator_"

// device reads a device and finds its allocators, each of which is validated: the remains
// of a destroyed object have none.
func (r *reader) device(address uint64) (d Device, allocators []uint64, err error) {
	const tracker = "Device.sub_device_manager_tracker_"
	o := r.objects()
	d.Address = address
	switch o.word(address) {
	case r.bias + r.Kernel.MeshVtable:
		d.Mesh = true
		d.Chips = r.chips(o, address)
		if o.knows("MeshDevice.pimpl_") {
			d.Impl = o.u64(address, "MeshDevice.pimpl_")
		}
		allocators = o.tracked(address, "MeshDevice.sub_device_manager_tracker_")
	case r.bias + r.Kernel.DeviceVtable:
		d.Chips = []int{o.chip(address)}
		switch {
		case o.knows(ownAllocator):
			allocators = []uint64{o.u64(address, ownAllocator)}
		case o.knows(tracker):
			allocators = o.tracked(address, tracker)
		}
	}
	if len(d.Chips) == 0 || len(allocators) == 0 {
		o.invalid()
	}
	return d, allocators, o.err
}

// chips are those of a mesh that belong to this host.
func (r *reader) chips(o *objects, mesh uint64) (chips []int) {
	for _, device := range r.localDevices(o, mesh) {
		chips = append(chips, o.chip(device))
	}
	return chips
}

// localDevices are the Devices of a mesh that belong to this host.
func (r *reader) localDevices(o *objects, mesh uint64) (devices []uint64) {
	stride := uint64(r.Kernel.MeshStride)
	entries := o.elements(o.span(mesh, "MeshDevice.devices"), stride, MaxChips)
	for entry := range slices.Chunk(entries, int(stride)) {
		if r.Kernel.MeshLocal != bpf.NoField && entry[r.Kernel.MeshLocal] != 1 {
			continue // a chip of another host
		}
		device := word(entry, 0)
		if o.word(device) != r.bias+r.Kernel.DeviceVtable {
			o.invalid()
			return nil
		}
		devices = append(devices, device)
	}
	return devices
}

// chip is the id of a Device.
func (o *objects) chip(device uint64) int {
	id := o.u32(device, "Device.id_")
	if id >= MaxChips {
		o.invalid()
	}
	return int(id)
}

// tracked are the allocators in the default and the active SubDeviceManager of a device;
// field leads to its SubDeviceManagerTracker, which is null if the device is closed.
func (o *objects) tracked(device uint64, field string) (allocators []uint64) {
	tracker := o.u64(device, field)
	for _, field := range []string{
		"SubDeviceManagerTracker.default_sub_device_manager_", "SubDeviceManagerTracker.active_sub_device_manager_",
	} {
		manager := o.u64(tracker, field)
		for _, words := range o.words(o.span(manager, "SubDeviceManager.sub_device_allocators_"), 1, MaxAllocators) {
			if a := words[0]; a != 0 && !slices.Contains(allocators, a) {
				allocators = append(allocators, a)
			}
		}
	}
	return allocators
}

// banks reads the properties of an allocator's regions. An allocator has at least DRAM and
// L1, each with a FreeListOpt.
func (r *reader) banks(allocator uint64) (banks [event.BankedRegions]Bank, err error) {
	o := r.objects()
	for region := range banks {
		offset := r.Kernel.Managers[region]
		if offset == bpf.NoField {
			continue
		}
		if manager := o.word(allocator + uint64(offset)); manager != 0 {
			banks[region] = r.bank(o, manager)
		}
	}
	for _, region := range []event.Region{event.DRAM, event.L1} {
		if banks[region].Banks == 0 || banks[region].BytesPerBank == 0 {
			o.invalid()
		}
	}
	for region := range banks {
		banks[region] = BankOf(bpf.KernelBankInfo(banks[region]))
	}
	return banks, o.err
}

// maxBanks and maxAlignment reject implausible regions.
const (
	maxBanks     = 1 << 16
	maxAlignment = 1 << 20
)

// bank reads a BankManager. That of a region without banks has no free list.
func (r *reader) bank(o *objects, manager uint64) Bank {
	b := bpf.KernelBankInfo{
		Banks:          uint32(o.u32(manager, "BankManager.num_banks_")),
		AlignmentBytes: uint32(o.u32(manager, "BankManager.alignment_bytes_")),
	}
	if list := r.freeList(o, manager); list != 0 {
		b.BytesPerBank = o.u64(manager, "BankManager.bank_size")
		if o.knows("FreeListOpt.offset_bytes_") {
			b.Base = o.u64(list, "FreeListOpt.offset_bytes_")
		}
		if o.knows("FreeListOpt.alignment_") {
			b.BlockAlignmentBytes = o.u64(list, "FreeListOpt.alignment_")
		}
		if o.knows("FreeListOpt.shrink_size_") {
			b.ShrunkBytes = o.u64(list, "FreeListOpt.shrink_size_")
		}
		if b.Base > 0 {
			b.Base += b.ShrunkBytes
		}
	}
	if b.Banks > maxBanks || b.AlignmentBytes > maxAlignment || b.BlockAlignmentBytes > maxAlignment {
		o.invalid()
	}
	return Bank(b)
}

// freeList is the FreeListOpt of a BankManager; 0 if it has none.
func (r *reader) freeList(o *objects, manager uint64) uint64 {
	size := o.fields["BankManager.bank_size"]
	list := manager
	for _, offset := range size[:len(size)-1] {
		if list = o.word(list + uint64(offset)); list == 0 {
			return 0
		}
	}
	if o.word(list) != r.bias+r.Layout.FreeList.Vtable {
		o.invalid()
	}
	return list
}
