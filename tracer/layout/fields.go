package layout

import (
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// The functions whose code tells where fields lie.
const (
	bufferAddress    = "6Buffer7addressEv"
	bufferPageSize   = "6Buffer9page_sizeEv"
	bufferIsDRAM     = "6Buffer7is_dramEv"
	bufferNumPages   = "6Buffer9num_pagesEv"
	bufferNumCores   = "6Buffer9num_coresEv"
	bufferUniqueID   = "6Buffer9unique_idEv"
	bufferDestructor = "6BufferD2Ev"
	bufferDtor1      = "6BufferD1Ev"
	bufferCtor       = "6BufferC2E"
	implCtor         = "10BufferImplC2E"
	allocateImpl     = "6Buffer13allocate_implEv"
	allocateImplNew  = "10BufferImpl13allocate_implE"
	deallocImpl      = "6Buffer15deallocate_implEv"
	deallocImplNew   = "10BufferImpl15deallocate_implE"

	deviceID         = "6Device2idEv"
	meshID           = "11distributed10MeshDevice2idEv"
	meshImplID       = "11distributed14MeshDeviceImpl2idEv"
	meshDeviceIDs    = "11distributed10MeshDevice14get_device_idsEv"
	meshImplIDs      = "11distributed14MeshDeviceImpl14get_device_idsEv"
	meshViewDevices  = "11distributed14MeshDeviceView11get_devicesEv"
	deviceVtable     = "_ZTVN2tt8tt_metal6DeviceE"
	meshDeviceVtable = "_ZTVN2tt8tt_metal11distributed10MeshDeviceE"

	numBanks     = "11BankManager9num_banksEv"
	bankSize     = "11BankManager9bank_sizeEv"
	bankAllocate = "11BankManager15allocate_bufferE"
	banksOf      = "13AllocatorImpl13get_num_banksE"
	banksOfOld   = "9Allocator13get_num_banksE"

	programID     = "6detail11ProgramImpl6get_idEv"
	runtimeID     = "7Program14get_runtime_idEv"
	programPop    = "6detail11ProgramImpl22populate_dispatch_dataE"
	trackProgram  = "12GraphTracker13track_programE"
	trackAllocate = "12GraphTracker14track_allocateE"
)

func fieldFunctions() []string {
	return []string{
		bufferAddress, bufferPageSize, bufferIsDRAM, bufferNumPages, bufferNumCores, bufferUniqueID,
		bufferDestructor, bufferDtor1, bufferCtor, implCtor, allocateImpl, allocateImplNew, deallocImpl,
		deallocImplNew, deviceID, meshID, meshImplID, meshDeviceIDs, meshImplIDs, meshViewDevices,
		numBanks, bankSize, bankAllocate, banksOf, banksOfOld,
		programID, runtimeID, programPop, trackProgram,
	}
}

// first is the first step of a function for which ok holds.
func (d *deriver) first(f symbolize.Symbol, ok func(*step) bool) *step {
	var found *step
	if f.Addr == 0 {
		return nil
	}
	d.walk(f, func(s *step) bool {
		if ok(s) {
			found = s
			return false
		}
		return true
	})
	return found
}

// loadOf is a step that reads so many bytes of the first argument's object, at
// any depth; pointers on the way are not meant: nothing is loaded through them.
func (d *deriver) lastLoad(f symbolize.Symbol, bytes int) Chain {
	var found Chain
	d.walk(f, func(s *step) bool {
		if s.mem.known && s.mem.arg == 0 && s.bytes == bytes && !s.store {
			found = s.mem.chain()
		}
		return s.in.Op != x86asm.RET
	})
	return found
}

func isThis(s *step, arg, bytes int) bool {
	return s.mem.known && s.mem.arg == arg && s.bytes == bytes
}

// buffer finds the fields of Buffer, from Buffer *.
func (d *deriver) buffer() {
	const costs = "no buffer can be counted"
	set := func(name string, c Chain, why string) {
		if len(c) == 0 {
			d.miss("Buffer::"+name, why, costs)
			return
		}
		d.Fields[name] = c
	}

	// address(): the status is checked, then the address returned
	address := d.function(bufferAddress)
	status := d.first(address, func(s *step) bool { return s.in.Op == x86asm.CMP && isThis(s, 0, 1) })
	var statusChain Chain
	if status != nil {
		statusChain = status.mem.chain()
	}
	set("allocation_status_", statusChain, "Buffer::address() checks no status")
	set("address_", d.lastLoad(address, 4), "Buffer::address() returns no field")

	pageSize := d.lastLoad(d.function(bufferPageSize), 8)
	set("page_size_", pageSize, "Buffer::page_size() returns no field")
	var impl Chain
	if len(pageSize) > 1 {
		impl = pageSize[:len(pageSize)-1]
	}

	// is_dram(): the type is compared
	kind := d.first(d.function(bufferIsDRAM), func(s *step) bool { return isThis(s, 0, 4) })
	set("buffer_type_", chainOf(kind), "Buffer::is_dram() compares no field")

	// num_pages(): size by page size
	size := d.first(d.function(bufferNumPages), func(s *step) bool {
		return isThis(s, 0, 8) && !slices.Equal(s.mem.chain(), pageSize) && len(s.mem.chain()) == len(pageSize)
	})
	set("size_", chainOf(size), "Buffer::num_pages() divides no field")

	layout := d.first(d.function(bufferNumCores), func(s *step) bool { return isThis(s, 0, 4) })
	set("buffer_layout_", chainOf(layout), "Buffer::num_cores() looks at no field")

	d.allocation(impl, set)
	d.deallocation(impl, statusChain, set)
	d.ownership(impl, statusChain, set)
	set("unique_id_", d.uniqueID(impl, len(pageSize)), "neither unique_id() nor a constructor tells")
}

func chainOf(s *step) Chain {
	if s == nil {
		return nil
	}
	return s.mem.chain()
}

// through is a field of the implementation as a field of the Buffer.
func through(impl Chain, offset int32) Chain { return append(slices.Clone(impl), offset) }

// allocation reads allocate_impl, which gets the object that has the fields: it
// marks a hooked allocation, and asks the allocator otherwise.
func (d *deriver) allocation(impl Chain, set func(string, Chain, string)) {
	f := d.function(allocateImpl)
	if f.Addr == 0 {
		f = d.function(allocateImplNew)
		d.ImplArgs = f.Addr != 0
	}
	d.AllocateImpl = f
	hooked := d.first(f, func(s *step) bool {
		return s.store && isThis(s, 0, 1) && s.in.Args[1] == x86asm.Arg(x86asm.Imm(1)) && len(s.mem.loads) == 0
	})
	allocator := d.first(f, func(s *step) bool {
		return s.in.Op == x86asm.CALL && contains(s.call, "15allocate_bufferEPNS0_6BufferE") &&
			s.arg(0).known && len(s.arg(0).loads) == 1
	})
	var hookedChain, allocatorChain Chain
	if hooked != nil {
		hookedChain = through(impl, hooked.mem.add)
	}
	if allocator != nil {
		allocatorChain = through(impl, allocator.arg(0).loads[0])
	}
	set("hooked_allocation_", hookedChain, "allocate_impl marks nothing")
	set("allocator_", allocatorChain, "allocate_impl calls no allocator")
}

// deallocation reads deallocate_impl: after the status it asks the device whether
// it is initialized.
func (d *deriver) deallocation(impl, status Chain, set func(string, Chain, string)) {
	f := d.function(deallocImpl)
	if f.Addr == 0 {
		f = d.function(deallocImplNew)
	}
	device := d.first(f, func(s *step) bool {
		return s.in.Op == x86asm.CALL && s.mem.known && s.mem.arg == 0 && len(s.mem.loads) == 2
	})
	var c Chain
	if device != nil {
		c = through(impl, device.mem.loads[0])
	}
	checked := d.first(f, func(s *step) bool { return s.in.Op == x86asm.CMP && isThis(s, 0, 1) })
	if checked == nil || len(status) == 0 || checked.mem.add != status[len(status)-1] {
		set("device_", nil, "deallocate_impl and address() disagree on the status")
		return
	}
	set("device_", c, "deallocate_impl asks no device")
}

// ownership reads ~Buffer: it gives back what it owns, unless that was done.
func (d *deriver) ownership(impl, status Chain, set func(string, Chain, string)) {
	f := d.function(bufferDestructor)
	if f.Addr == 0 {
		f = d.function(bufferDtor1)
	}
	past := false
	owns := d.first(f, func(s *step) bool {
		if !isThis(s, 0, 1) || len(s.mem.loads) != len(impl) {
			return false
		}
		if len(status) > 0 && s.mem.add == status[len(status)-1] {
			past = true
			return false
		}
		return past && s.in.Op == x86asm.CMP
	})
	set("owns_data_", chainOf(owns), "~Buffer does not look whether it owns its data")
}

// uniqueID reads the accessor where it is exported, and else the constructor: the
// id is what it takes off a counter with `lock xadd`.
func (d *deriver) uniqueID(impl Chain, depth int) Chain {
	if c := d.lastLoad(d.function(bufferUniqueID), 8); len(c) == depth {
		return c
	}
	for _, ctor := range []string{bufferCtor, implCtor} {
		for _, f := range d.functions[ctor] {
			if c := d.counted(f); c != nil {
				return through(impl, c[0])
			}
		}
	}
	return nil
}

// counted is where a constructor stores what `lock xadd` left in a register.
func (d *deriver) counted(f symbolize.Symbol) Chain {
	counter := -1
	var found Chain
	d.walk(f, func(s *step) bool {
		if s.in.Op == x86asm.XADD && s.bytes == 8 {
			counter, _ = register(s.in.Args[1])
			return true
		}
		if counter >= 0 && s.store && isThis(s, 0, 8) && len(s.mem.loads) == 0 {
			if from, ok := register(s.in.Args[1]); ok && from == counter {
				found = s.mem.chain()
				return false
			}
		}
		return true
	})
	return found
}

// devices finds a chip's id and a mesh's chips.
func (d *deriver) devices() {
	const costs = "which chips a buffer is on is not known"
	if c := d.lastLoad(d.function(deviceID), 4); len(c) == 1 {
		d.Fields["Device.id_"] = c
	} else {
		d.miss("Device::id_", "Device::id() returns no field", costs)
	}
	d.meshID()
	d.meshDevices(costs)
	for name, at := range map[string]*uint64{deviceVtable: &d.DeviceVtable, meshDeviceVtable: &d.MeshVtable} {
		if f, ok := d.elf.Lookup(name); ok {
			*at = f.Addr + 16 // after the offset to the top and the type information
		} else {
			d.miss(name, "no such symbol", costs)
		}
	}
}

func (d *deriver) meshID() {
	direct := d.lastLoad(d.function(meshID), 4)
	if len(direct) == 1 {
		d.Fields["MeshDevice.mesh_id_"] = direct
		return
	}
	inner := d.lastLoad(d.function(meshImplID), 4)
	pimpl := d.first(d.function(meshID), func(s *step) bool { return isThis(s, 0, 8) && len(s.mem.loads) == 0 })
	if len(inner) == 1 && pimpl != nil {
		d.Fields["MeshDevice.pimpl_"] = pimpl.mem.chain()
		d.Fields["MeshDeviceImpl.mesh_id_"] = inner
	}
}

// meshDevices follows get_device_ids() to the vector of chips. It returns a
// vector by value: the object is its second argument.
func (d *deriver) meshDevices(costs string) {
	var path Chain
	f := d.function(meshDeviceIDs)
	for range 4 {
		var next string
		var v value
		call := d.first(f, func(s *step) bool {
			if s.in.Op != x86asm.CALL && s.in.Op != x86asm.JMP || s.call == "" {
				return false
			}
			v, next = s.arg(1), s.call
			return v.known && v.arg == 1
		})
		pair := d.vectorPair(f)
		if pair != nil && (call == nil || pair.addr < call.addr) {
			d.Fields["MeshDevice.devices"] = append(path, pair.mem.chain()...)
			d.MeshStride = 8
			return
		}
		if call == nil {
			break
		}
		if contains(next, "extract_locals") {
			d.Fields["MeshDevice.devices"] = append(path, v.chain()...)
			d.MeshStride, d.MeshLocal = 16, 8
			return
		}
		path = append(path, v.loads...)
		if v.add != 0 {
			break
		}
		f = d.named(next)
	}
	d.miss("MeshDevice's chips", "get_device_ids() reads no vector that is understood", costs)
}

// vectorPair is the step that reads the begin of a vector, if its end is read
// next to it.
func (d *deriver) vectorPair(f symbolize.Symbol) *step {
	var begin *step
	return d.first(f, func(s *step) bool {
		if !isThis(s, 1, 8) || s.store || s.in.Op != x86asm.MOV {
			return false
		}
		if begin != nil && slices.Equal(begin.mem.loads, s.mem.loads) && s.mem.add == begin.mem.add+8 {
			*s = *begin
			return true
		}
		begin = s
		return false
	})
}

// named is the function of that name among those that are looked at.
func (d *deriver) named(name string) symbolize.Symbol {
	for _, list := range d.functions {
		for _, f := range list {
			if rest, ok := cutNamespace(f.Name); ok && rest == name {
				return f
			}
		}
	}
	return symbolize.Symbol{}
}
