package heap

// A process's devices and buffers in a synthetic memory, intact and damaged.

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// The addresses that fakeWorld uses, and its layout.
const (
	worldMesh      = 0x100000
	worldChip      = 0x101000 // each 0x100 further
	worldTracker   = 0x102000
	worldManager   = 0x103000 // of sub-devices
	worldVectors   = 0x104000
	worldAllocator = 0x105000
	worldBanks     = 0x106000 // BankManagers, each 0x100 further
	worldFreeList  = 0x107000 // each 0x100 further
	worldBlocks    = 0x108000
	worldBuffers   = 0x200000 // each 0x100 further
	worldRanges    = 0x300000

	meshTable, chipTable, listTable = 0x5000, 0x6000, 0x7000
	worldBias                       = 0x7f0000000000
)

// worldLibrary returns a library with a possible layout.
func worldLibrary() *Library {
	l := &Library{Layout: &layout.Layout{
		Fields: map[string]layout.Chain{
			"Allocator.allocated_buffers_":                        {0x100},
			"SubDeviceManager.sub_device_allocators_":             {0x60},
			"SubDeviceManagerTracker.default_sub_device_manager_": {0x48},
			"SubDeviceManagerTracker.active_sub_device_manager_":  {0x40},
			"MeshDevice.sub_device_manager_tracker_":              {0x20},
			"MeshDevice.devices":                                  {0x30},
			"Device.id_":                                          {0x8},
			"Device.allocator_":                                   {0x40},
			"BankManager.num_banks_":                              {0x10},
			"BankManager.alignment_bytes_":                        {0x14},
			"BankManager.bank_size":                               {0x20, 0x8},
		},
		DeviceVtable: chipTable, MeshVtable: meshTable,
		FreeList:   layout.FreeList{Vtable: listTable, Addresses: 0x40, Sizes: 0x58, Base: 0x10, Flags: []int32{0x70}},
		ShardCores: layout.ShardCores{Choice: layout.Chain{0xb0}, Grid: layout.Chain{0x80}, Cores: layout.Chain{0x90}, Shards: layout.Chain{0xa8}},
	}}
	k := &l.Kernel
	k.BufferImpl, k.Window = bpf.NoField, 0x10
	k.Device, k.Allocator, k.Status, k.Hooked, k.Sharding = 0, 0x30, 0x38, 0x39, 0x14
	k.UniqueId = 0x70
	k.Size, k.Type, k.OwnsData, k.Address, k.PageSize = 8, 0x10, 0x1b, 0x40, 0x48
	k.DeviceVtable, k.MeshVtable, k.ChipId = chipTable, meshTable, 8
	k.MeshStride, k.MeshLocal, k.MeshDevices = 8, bpf.NoField, chain(layout.Chain{0x30})
	k.Managers = [5]uint32{0x8, 0x10, bpf.NoField, 0x18, bpf.NoField}
	k.ManagerBanks, k.ManagerAlignment, k.ManagerSize = 0x10, 0x14, chain(layout.Chain{0x20, 0x8})
	return l
}

// fakeWorld is a mesh of two chips with six buffers, two of which are sharded.
func fakeWorld() (*fakeSet, *scanner) { return fakeWorldOf(6, 97) }

// fakeWorldOf is a fakeWorld with n buffers in some buckets.
func fakeWorldOf(n, buckets uint64) (*fakeSet, *scanner) {
	s := newFakeSet(buckets)
	m := s.fakeMemory
	m.put(worldMesh, worldBias+meshTable, 0, 0, 0, worldTracker, 0, worldVectors, worldVectors+16)
	for i := range uint64(2) {
		m.put(worldVectors+i*8, worldChip+i*0x100)
		m.put(worldChip+i*0x100, worldBias+chipTable, 4+i)
		m.put(worldChip+i*0x100+0x40, 0)
	}
	m.put(worldTracker+0x40, worldManager, worldManager)
	m.put(worldManager+0x60, worldVectors+0x100, worldVectors+0x108)
	m.put(worldVectors+0x100, worldAllocator)
	for i, offset := range []uint64{0x8, 0x10, 0x18} { // DRAM, L1, L1_SMALL
		i := uint64(i)
		banks, list := worldBanks+i*0x100, worldFreeList+i*0x100
		m.put(worldAllocator+offset, banks)
		m.put(banks+0x10, 8+i|32<<32, 0, list)
		m.put(list, worldBias+listTable, 1<<20, 0)
	}
	// the buffers' set
	set := s.get(fakeSetAt)
	m.put(worldAllocator+0x100, set, s.count, 0, 0, uint64(math.Float32bits(1)), 0, 0)
	for i := range n {
		at := worldBuffers + i*0x100
		region, sharded, address := i%2, uint64(0), 0x1000*(i+1)
		if i == 4 || i == 5 {
			sharded, region, address = 2, 1, 0x800*(i+1)
		}
		m.put(at+0x10, worldMesh, 8192, region|sharded<<32, 0, 0, 0, worldAllocator, 1, address, 1024)
		m.put(at+0x70, 100+i)
		m.put(at+0x80, worldRanges, worldRanges+32, 0, 0, 0, 0, 0)
		s.insert(at)
	}
	// the header in use is the one at fakeSetAt
	first := s.get(fakeSetAt + setFirst)
	m.put(worldAllocator+0x110, first, n)
	for bucket := range s.count {
		if s.get(set+bucket*8) == fakeSetAt+setFirst {
			m.put(set+bucket*8, worldAllocator+0x110)
		}
	}
	m.put(worldRanges, 0, 0, 1, 1) // four cores
	m.put(worldFreeList+0x100+0x40, worldBlocks, worldBlocks+16)
	m.put(worldFreeList+0x100+0x58, worldBlocks+0x100, worldBlocks+0x110)
	m.put(worldFreeList+0x100+0x70, worldBlocks+0x200, worldBlocks+0x202)
	m.put(worldBlocks, 0x800*5, 0x800*6)
	m.put(worldBlocks+0x100, 2048, 3072)
	m.put(worldBlocks+0x200, 0x0101)
	r := &reader{Library: worldLibrary(), memory: budgetOf(m), bias: worldBias}
	return s, &scanner{reader: r, devices: make(map[uint64]bool), allocators: make(map[uint64]bool)}
}

// readAll reads devices.
func (s *scanner) readAll(at ...uint64) (devices []Device, buffers []Buffer, err error) {
	s.report = func(d Device, list []Buffer) {
		devices = append(devices, d)
		buffers = append(buffers, list...)
	}
	for _, address := range at {
		if err = s.discover(context.Background(), address); err != nil {
			break
		}
	}
	return devices, buffers, err
}

func TestFakeWorld(t *testing.T) {
	_, s := fakeWorld()
	devices, buffers, err := s.readAll(worldMesh, worldMesh, worldChip)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(s.problems, 0), qt.Commentf("%v", s.problems))
	qt.Assert(t, qt.HasLen(devices, 1)) // a chip without an allocator is left out
	qt.Check(t, qt.DeepEquals(devices[0].Chips, []int{4, 5}))
	qt.Check(t, qt.Equals(devices[0].Allocator, worldAllocator))
	qt.Check(t, qt.Equals(devices[0].Banks[event.L1], Bank(bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 9, AlignmentBytes: 32})))
	qt.Assert(t, qt.HasLen(buffers, 6))
	slices.SortFunc(buffers, func(a, b Buffer) int { return int(a.ID) - int(b.ID) })
	for i, want := range []struct {
		banks uint32
		bytes uint64
	}{{8, 1024}, {9, 1024}, {8, 1024}, {9, 1024}, {4, 2048}, {4, 3072}} {
		b := buffers[i]
		qt.Check(t, qt.Equals(b.ID, uint64(100+i)))
		qt.Check(t, qt.Equals(b.Banks, want.banks))
		qt.Check(t, qt.Equals(b.BytesPerBank, want.bytes))
	}
}

// While a sub-device manager has a part of L1, the allocator of the mesh has the rest, and those of
// sub-devices the part. They have no DRAM, and are not reported without buffers.
func TestSubDeviceManagersInMemory(t *testing.T) {
	const local, localBanks, localList = 0x400000, 0x401000, 0x402000
	w, s := fakeWorld()
	m, fields := w.fakeMemory, s.Layout.Fields
	fields["FreeListOpt.offset_bytes_"], fields["FreeListOpt.shrink_size_"] = layout.Chain{0x10}, layout.Chain{0x28}
	fields["MeshDevice.pimpl_"] = layout.Chain{0x18}
	m.put(worldMesh+0x18, 0x777000)
	m.put(worldFreeList+0x100+0x10, 0x800, 0, 0, 0x4000) // L1
	m.put(worldBlocks, 0x800*4, 0x800*5)
	m.put(worldManager+0x60, worldVectors+0x100, worldVectors+0x110)
	m.put(worldVectors+0x108, local)
	for i, bytes := range []uint64{1<<64 - 32, 0x4000} {
		i := uint64(i)
		m.put(local+0x8+8*i, localBanks+i*0x100)
		m.put(localBanks+i*0x100+0x10, 4|32<<32, 0, localList+i*0x100)
		m.put(localList+i*0x100, worldBias+listTable, bytes, 32)
	}
	m.put(local+0x18, 0)
	m.put(local+0x100, local+0x100+setSingle, 1, 0, 0, uint64(math.Float32bits(1)), 0, 0) // an empty set
	banks, err := s.banks(local)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(banks[event.DRAM], Bank{}))
	qt.Check(t, qt.Equals(banks[event.L1].BytesPerBank, 0x4000))
	devices, _, err := s.readAll(worldMesh)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(s.problems, 0), qt.Commentf("%v", s.problems))
	qt.Assert(t, qt.HasLen(devices, 1))
	qt.Check(t, qt.Equals(devices[0].Impl, 0x777000))
	l1 := devices[0].Banks[event.L1]
	qt.Check(t, qt.DeepEquals([]uint64{l1.Base, l1.ShrunkBytes, l1.BytesPerBank}, []uint64{0x4800, 0x4000, 1 << 20}))
}

// A buffer with unknown properties is returned without them, or left out, and the error
// says so.
func TestUnknownPropertiesAreNamed(t *testing.T) {
	const buffer = worldBuffers + 5*0x100 // sharded
	for _, c := range []struct {
		name      string
		damage    func(*fakeMemory, *scanner)
		buffers   int
		mentioned string
	}{
		{"no block", func(m *fakeMemory, _ *scanner) { m.put(worldBlocks+0x200, 1) }, 6, "1 sharded buffers in L1: bytes per bank unknown"},
		{"no blocks", func(_ *fakeMemory, s *scanner) { s.Layout.FreeList.Sizes = 0 }, 6, "2 sharded buffers in L1: bytes per bank unknown"},
		{"no cores", func(m *fakeMemory, _ *scanner) { m.put(buffer+0x80, 0, 0) }, 6, "1 sharded buffers in L1: bytes per bank unknown"},
		{"cores nowhere", func(m *fakeMemory, _ *scanner) { m.put(buffer+0x80, 1<<40, 1<<40+32) }, 6, "1 sharded"},
		{"far too many cores", func(m *fakeMemory, _ *scanner) { m.put(worldRanges, 0, 0, 1<<40, 1<<40) }, 6, "2 sharded"},
		{"no layout of cores", func(_ *fakeMemory, s *scanner) { s.Layout.ShardCores = layout.ShardCores{} }, 6, "2 sharded"},
		{"another's buffer", func(m *fakeMemory, _ *scanner) { m.put(buffer+0x40, 1) }, 5, "1 of 6 live buffers"},
		{"no type", func(m *fakeMemory, _ *scanner) { m.put(buffer+0x20, 77) }, 5, "1 of 6 live buffers"},
		{"no size", func(m *fakeMemory, _ *scanner) { m.put(buffer+0x18, 0) }, 5, "1 of 6 live buffers"},
		{"no memory yet", func(m *fakeMemory, _ *scanner) { m.put(buffer+0x48, 0) }, 5, ""},
		{"circle", func(m *fakeMemory, _ *scanner) {
			first := m.get(worldAllocator + 0x110)
			m.put(first, first)
		}, 0, "changes too fast"},
		{"no set", func(m *fakeMemory, _ *scanner) { m.put(worldAllocator+0x120, 0) }, 0, "no set of buffers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, s := fakeWorld()
			c.damage(w.fakeMemory, s)
			devices, buffers, err := s.readAll(worldMesh)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.HasLen(devices, 1))
			qt.Check(t, qt.HasLen(buffers, c.buffers))
			if c.mentioned == "" {
				qt.Check(t, qt.HasLen(s.problems, 0))
			} else if qt.Check(t, qt.HasLen(s.problems, 1)) {
				qt.Check(t, qt.StringContains(s.problems[0].Error(), c.mentioned))
			}
			for _, b := range buffers {
				if b.Object == buffer {
					qt.Check(t, qt.Equals(b.BytesPerBank, 0))
					qt.Check(t, qt.Equals(b.Banks, 0))
				}
			}
		})
	}
}

// Destroyed objects are not taken for devices, whatever remains of them.
func TestDestroyedDevices(t *testing.T) {
	for _, at := range []uint64{
		worldMesh, worldMesh + 0x20, worldMesh + 0x38, worldChip, worldTracker + 0x40, worldTracker + 0x48,
		worldManager + 0x60, worldVectors + 0x100, worldAllocator + 8, worldAllocator + 0x10, worldBanks + 0x20,
		worldFreeList, worldFreeList + 0x100,
	} {
		for _, with := range []uint64{0, 0x5a5a5a5a5a5a, worldBias, ^uint64(0)} {
			w, s := fakeWorld()
			w.put(at, with)
			devices, _, err := s.readAll(worldMesh)
			qt.Check(t, qt.IsNil(err))
			qt.Check(t, qt.HasLen(devices, 0), qt.Commentf("%#x: %#x", at, with))
			qt.Check(t, qt.HasLen(s.problems, 0))
		}
	}
}

// Reading any damaged memory terminates, and returned buffers are plausible.
func TestDamagedWorld(t *testing.T) {
	dice := rand.New(rand.NewPCG(8, 9))
	for range 100 {
		w, s := fakeWorld()
		pages := make([]uint64, 0, len(w.pages))
		for page := range w.pages {
			pages = append(pages, page)
		}
		slices.Sort(pages)
		known := []uint64{0, 1, ^uint64(0), worldMesh, worldAllocator, worldBuffers, fakeBuckets, fakeNodes, 1 << 47, worldBias + meshTable, 1 << 24}
		for range 1 + dice.IntN(20) {
			at := pages[dice.IntN(len(pages))]*fakePage + 8*dice.Uint64N(fakePage/8)
			if dice.IntN(4) > 0 { // where there is something
				at = at&^(fakePage-1) + 8*dice.Uint64N(0x20)
			}
			value := known[dice.IntN(len(known))]
			if dice.IntN(2) == 0 {
				value = w.get(at) + 8*dice.Uint64N(8) - 16
			}
			w.put(at, value)
		}
		_, buffers, err := s.readAll(worldMesh, worldChip, worldChip+0x100)
		qt.Assert(t, qt.IsNil(err))
		for _, b := range buffers {
			qt.Assert(t, qt.IsTrue(b.SizeBytes > 0 && b.Allocator != 0 && int(b.Region) < event.BankedRegions))
		}
	}
}

// The programs of command queues and of the fabric are found in the chips of a mesh. Damaged ones
// are left out.
func TestRuntimePrograms(t *testing.T) {
	const (
		programs = 0x400000 // Programs, each 0x10 further
		impls    = 0x401000 // ProgramImpls, each 0x100 further
		configs  = 0x402000 // each 0x100 further
		queues   = 0x403000 // vectors of Programs
	)
	world := func() (*fakeSet, *scanner) {
		w, s := fakeWorld()
		fields := s.Layout.Fields
		fields["Device.command_queue_programs_"], fields["Device.fabric_program_"] = layout.Chain{0x70}, layout.Chain{0xa0}
		fields["Program.impl"], fields["ProgramImpl.id"] = layout.Chain{0}, layout.Chain{0x8}
		fields["ProgramImpl.kernel_text_size"] = layout.Chain{0x30, 0x1c}
		for i := range uint64(3) {
			w.put(programs+i*0x10, impls+i*0x100)
			w.put(impls+i*0x100+0x8, 20+i)
			w.put(impls+i*0x100+0x30, configs+i*0x100, configs+i*0x100+0x40)
			for half := range uint64(2) { // of Tensix and of Ethernet cores: the size is the last word
				w.put(configs+i*0x100+half*0x20, 0, 0, 0, (100*i+half)<<32)
			}
		}
		w.put(queues, programs)
		w.put(queues+0x10, programs+0x10)
		w.put(worldChip+0x70, queues, queues+8)
		w.put(worldChip+0x100+0x70, queues+0x10, queues+0x18)
		w.put(worldChip+0x100+0xa0, programs+0x20)
		return w, s
	}
	_, s := world()
	devices, _, err := s.readAll(worldMesh)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(devices[0].Runtime, []RuntimeProgram{
		{20, 4, event.QueueKernels, 1}, {21, 5, event.QueueKernels, 101}, {22, 5, event.FabricKernels, 201},
	}))
	for _, at := range []uint64{worldChip + 0x78, programs, impls + 0x38} {
		w, s := world()
		w.put(at, 1<<47)
		devices, buffers, err := s.readAll(worldMesh)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.HasLen(devices[0].Runtime, 0), qt.Commentf("%#x", at))
		qt.Check(t, qt.HasLen(buffers, 6))
	}
}

// Nothing is read, and the error names the field.
func TestMissingFields(t *testing.T) {
	for name := range worldLibrary().Layout.Fields {
		l := worldLibrary()
		delete(l.Layout.Fields, name)
		err := l.checkReadable()
		if name == "Device.allocator_" { // there may be meshes only
			qt.Check(t, qt.IsNil(err))
			continue
		}
		qt.Check(t, qt.ErrorMatches(err, ".*cannot find "+name+"; `ttmem doctor .*"))
	}
	l := worldLibrary()
	l.Layout.FreeList = layout.FreeList{}
	err := l.checkReadable()
	qt.Check(t, qt.ErrorMatches(err, ".*cannot find FreeListOpt.vtable;.*"))
}
