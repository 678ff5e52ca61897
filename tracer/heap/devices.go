package heap

// This file finds the devices of a process in its memory, with their allocators.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// Device is a device that was found in a process's memory.
type Device struct {
	Address uint64
	Mesh    bool
	Chips   []int
	// Allocator is 0 if no probe reports the end of the device's allocator and the
	// allocator is empty.
	Allocator uint64
	Banks     [event.BankedRegions]Bank
}

// objectLayout has offsets that only a late attach needs, besides those of the kernel side.
type objectLayout struct {
	*Library
	set int // of live buffers, in an allocator
	// tracker leads to a mesh's SubDeviceManagerTracker, deviceTracker to that of a Device;
	// both nil if unknown
	tracker, deviceTracker []uint32
	// managers are the pointers in a tracker to the SubDeviceManagers, allocators is the
	// vector of allocators in one
	managers   []uint32
	allocators uint32
	// own is the pointer in a Device to its allocator; bpf.NoField if it has none
	own uint32
}

func offsets(c layout.Chain) []uint32 {
	list := make([]uint32, len(c))
	for i, offset := range c {
		list[i] = uint32(offset)
	}
	return list
}

// objectLayout collects these offsets. The error names a missing one.
func (l *Library) objectLayout() (*objectLayout, error) {
	fields := l.Layout.Fields
	missing := func(name string) error {
		return fmt.Errorf("%s%s: cannot find %s; `ttmem doctor --library %s` shows details",
			l.Path, l.InRelease(), name, l.Path)
	}
	for _, name := range []string{
		"Allocator.allocated_buffers_", "SubDeviceManager.sub_device_allocators_",
		"SubDeviceManagerTracker.default_sub_device_manager_", "SubDeviceManagerTracker.active_sub_device_manager_",
		"MeshDevice.sub_device_manager_tracker_", "MeshDevice.devices", "Device.id_",
		"BankManager.num_banks_", "BankManager.alignment_bytes_", "BankManager.bank_size",
	} {
		if len(fields[name]) == 0 {
			return nil, missing(name)
		}
	}
	late := &objectLayout{
		Library: l, own: bpf.NoField,
		set:     int(fields["Allocator.allocated_buffers_"][0]),
		tracker: offsets(fields["MeshDevice.sub_device_manager_tracker_"]),
		managers: []uint32{
			uint32(fields["SubDeviceManagerTracker.default_sub_device_manager_"][0]),
			uint32(fields["SubDeviceManagerTracker.active_sub_device_manager_"][0]),
		},
		allocators: uint32(fields["SubDeviceManager.sub_device_allocators_"][0]),
	}
	switch {
	case l.Layout.MeshVtable == 0 || l.Layout.DeviceVtable == 0:
		return nil, missing("the virtual tables of Device and MeshDevice")
	case l.Layout.FreeList.Vtable == 0:
		return nil, missing("FreeListOpt.vtable")
	case l.Kernel.Managers[event.DRAM] == bpf.NoField || l.Kernel.Managers[event.L1] == bpf.NoField:
		return nil, missing("Allocator.managers")
	case len(fields["Device.allocator_"]) == 1:
		late.own = uint32(fields["Device.allocator_"][0])
	case len(fields["Device.sub_device_manager_tracker_"]) > 0:
		late.deviceTracker = offsets(fields["Device.sub_device_manager_tracker_"])
	}
	return late, nil
}

// reader reads one process.
type reader struct {
	*objectLayout
	memory memory
	bias   uint64
}

// errStale means that an object looks like a device but is none, or no longer.
var errStale = errors.New("no live device")

// maxChips and maxAllocators reject implausible devices.
const (
	maxChips      = 4096
	maxAllocators = 256
)

// device reads a device and finds its allocators, each of which is validated: the remains
// of a destroyed object have none.
func (r *reader) device(address uint64) (d Device, allocators []uint64, err error) {
	d.Address = address
	vtable, err := readWord(r.memory, address)
	if err != nil {
		return d, nil, err
	}
	switch vtable {
	case r.bias + r.Kernel.MeshVtable:
		d.Mesh = true
		if d.Chips, err = r.chips(address); err == nil {
			allocators, err = r.tracked(address, r.tracker)
		}
	case r.bias + r.Kernel.DeviceVtable:
		var id int
		if id, err = r.chip(address); err != nil {
			break
		}
		d.Chips = []int{id}
		switch {
		case r.own != bpf.NoField:
			var own uint64
			own, err = readWord(r.memory, address+uint64(r.own))
			allocators = []uint64{own}
		case r.deviceTracker != nil:
			allocators, err = r.tracked(address, r.deviceTracker)
		default:
			err = errStale
		}
	default:
		err = errStale
	}
	if err == nil && (len(d.Chips) == 0 || len(allocators) == 0) {
		err = errStale
	}
	return d, allocators, err
}

// chips are those of a mesh that belong to this host.
func (r *reader) chips(mesh uint64) ([]int, error) {
	k := &r.Kernel
	at, err := followChain(r.memory, mesh, k.MeshDevices.Offset[:k.MeshDevices.Length])
	if err != nil {
		return nil, err
	}
	header, err := readBytes(r.memory, at, 16)
	if err != nil {
		return nil, err
	}
	stride := int(k.MeshStride)
	entries, err := readVector(r.memory, header, uint64(stride), maxChips)
	if err != nil {
		return nil, err
	}
	var chips []int
	for ; len(entries) >= stride; entries = entries[stride:] {
		if k.MeshLocal != bpf.NoField && entries[k.MeshLocal] != 1 {
			continue // another host's
		}
		vtable, err := readWord(r.memory, word(entries, 0))
		if err != nil {
			return nil, err
		}
		if vtable != r.bias+k.DeviceVtable {
			return nil, errStale
		}
		id, err := r.chip(word(entries, 0))
		if err != nil {
			return nil, err
		}
		chips = append(chips, id)
	}
	return chips, nil
}

// chip is the id of a Device.
func (r *reader) chip(device uint64) (int, error) {
	b, err := readBytes(r.memory, device+uint64(r.Kernel.ChipId), 4)
	if err != nil {
		return 0, err
	}
	id := int(binary.LittleEndian.Uint32(b))
	if id >= maxChips {
		return 0, errStale
	}
	return id, nil
}

// tracked are the allocators in the default and the active SubDeviceManager of a device.
func (r *reader) tracked(device uint64, to []uint32) ([]uint64, error) {
	at, err := followChain(r.memory, device, to)
	if err != nil {
		return nil, err
	}
	tracker, err := readWord(r.memory, at)
	if err != nil {
		return nil, err
	}
	if tracker == 0 {
		return nil, errStale // it is closed
	}
	var allocators []uint64
	for _, offset := range r.managers {
		manager, err := readWord(r.memory, tracker+uint64(offset))
		if err != nil {
			return nil, err
		}
		header, err := readBytes(r.memory, manager+uint64(r.allocators), 16)
		if err != nil {
			return nil, err
		}
		list, err := readVector(r.memory, header, 8, maxAllocators)
		if err != nil {
			return nil, err
		}
		for ; len(list) >= 8; list = list[8:] {
			if a := word(list, 0); a != 0 && !slices.Contains(allocators, a) {
				allocators = append(allocators, a)
			}
		}
	}
	return allocators, nil
}

// banks reads the properties of an allocator's regions. An allocator has at least DRAM and
// L1, each with a FreeListOpt.
func (r *reader) banks(allocator uint64) (banks [event.BankedRegions]Bank, err error) {
	for region := range banks {
		offset := r.Kernel.Managers[region]
		if offset == bpf.NoField {
			continue
		}
		manager, err := readWord(r.memory, allocator+uint64(offset))
		if err != nil {
			return banks, err
		}
		if manager == 0 {
			continue
		}
		if banks[region], err = r.bank(manager); err != nil {
			return banks, err
		}
	}
	for _, region := range []event.Region{event.DRAM, event.L1} {
		if banks[region].Banks == 0 || banks[region].BytesPerBank == 0 {
			return banks, errStale
		}
	}
	return banks, nil
}

// maxBanks and maxAlignment reject implausible regions.
const (
	maxBanks     = 1 << 16
	maxAlignment = 1 << 20
)

func (r *reader) bank(manager uint64) (Bank, error) {
	fields := piecesOf([]uint64{manager + uint64(r.Kernel.ManagerBanks), manager + uint64(r.Kernel.ManagerAlignment)}, 4)
	if err := r.memory.read(fields); err != nil {
		return Bank{}, err
	}
	if !fields[0].ok || !fields[1].ok {
		return Bank{}, errStale
	}
	u32 := binary.LittleEndian.Uint32
	b := Bank(bpf.KernelBankInfo{Banks: u32(fields[0].data), AlignmentBytes: u32(fields[1].data)})
	if b.Banks > maxBanks || b.AlignmentBytes > maxAlignment {
		return Bank{}, errStale
	}
	list, ok, err := r.freeList(manager)
	if err != nil || !ok {
		return b, err // a region without banks has no free list
	}
	size := r.Kernel.ManagerSize
	at := list + uint64(size.Offset[size.Length-1])
	if b.BytesPerBank, err = readWord(r.memory, at); err != nil {
		return Bank{}, err
	}
	for _, beside := range []struct {
		to *uint64
		at int32
	}{{&b.Base, r.Kernel.ListBase}, {&b.BlockAlignmentBytes, r.Kernel.ListAlignment}} {
		if beside.at == 0 {
			continue // the library's layout does not have it
		}
		if *beside.to, err = readWord(r.memory, at+uint64(int64(beside.at))); err != nil {
			return Bank{}, err
		}
	}
	if b.BlockAlignmentBytes > maxAlignment {
		return Bank{}, errStale
	}
	return b, nil
}

// freeList is the FreeListOpt of a BankManager; false if it has none.
func (r *reader) freeList(manager uint64) (uint64, bool, error) {
	size := r.Kernel.ManagerSize
	list := manager
	for _, offset := range size.Offset[:size.Length-1] {
		next, err := readWord(r.memory, list+uint64(offset))
		if err != nil {
			return 0, false, err
		}
		if next == 0 {
			return 0, false, nil
		}
		list = next
	}
	vtable, err := readWord(r.memory, list)
	if err != nil {
		return 0, false, err
	}
	if vtable != r.bias+r.Layout.FreeList.Vtable {
		return 0, false, errStale
	}
	return list, true, nil
}
