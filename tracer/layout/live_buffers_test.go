package layout

import (
	"bytes"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// The expected values were read from the code by hand.
func TestLiveBuffers(t *testing.T) {
	blocks := func(flags ...int32) FreeList { return FreeList{Addresses: 0x40, Sizes: 0x58, Base: 0x10, Flags: flags} }
	for _, c := range []struct {
		release           string
		set               int32
		vector            int32 // in a SubDeviceManager
		mesh, device, own Chain
		blocks            FreeList
		cores             ShardCores
	}{
		{
			"0.60.1", 0x108, 0x60, Chain{0xb8}, Chain{0x28}, nil, blocks(0xa0),
			ShardCores{Choice: Chain{0xa8}, GridIfSet: true, Grid: Chain{0x60}, Cores: Chain{0x148}},
		},
		{
			"0.64.5", 0x130, 0x60, Chain{0xe0}, Chain{0x28}, nil, blocks(0xb8, 0xa0),
			ShardCores{Choice: Chain{0x1b8}, Grid: Chain{0x60}, Cores: Chain{0x120}, Shards: Chain{0x1b0}},
		},
		{
			"0.68.0", 0x130, 0x68, Chain{0x18, 0xd8}, nil, Chain{0x1d0}, blocks(0xb8, 0xa0),
			ShardCores{Choice: Chain{0x1b8}, Grid: Chain{0x60}, Cores: Chain{0x120}, Shards: Chain{0x1b0}},
		},
		{
			"0.76.0", 0x138, 0x68, Chain{0x18, 0xd8}, nil, Chain{0x220}, blocks(0xb8, 0xa0),
			ShardCores{Choice: Chain{0x1c0}, Grid: Chain{0x60}, Cores: Chain{0x120}, Shards: Chain{0x1b8}},
		},
		{
			"0.81.1", 0x130, 0x70, Chain{0x18, 0x1f8}, nil, Chain{0x248}, blocks(0xb8, 0xa0),
			ShardCores{Choice: Chain{0x10, 0x1b0}, Grid: Chain{0x10, 0x50}, Cores: Chain{0x10, 0x110}, Shards: Chain{0x10, 0x1a8}},
		},
	} {
		t.Run(c.release, func(t *testing.T) {
			e, err := symbolize.Open(library(t, c.release))
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			l, err := Derive(e)
			qt.Assert(t, qt.IsNil(err))
			for name, want := range map[string]Chain{
				"Allocator.allocated_buffers_":                        {c.set},
				"SubDeviceManager.sub_device_allocators_":             {c.vector},
				"SubDeviceManagerTracker.default_sub_device_manager_": {0x48},
				"SubDeviceManagerTracker.active_sub_device_manager_":  {0x40},
				"MeshDevice.sub_device_manager_tracker_":              c.mesh,
				"Device.sub_device_manager_tracker_":                  c.device,
				"Device.allocator_":                                   c.own,
				"FreeListOpt.offset_bytes_":                           {0x10},
				"FreeListOpt.alignment_":                              {0x20},
				"FreeListOpt.shrink_size_":                            {0x28},
			} {
				qt.Check(t, qt.DeepEquals(l.Fields[name], want), qt.Commentf("%s: %s", name, missing(l, name)))
			}
			vtable, ok := e.Lookup("_ZTVN2tt8tt_metal9allocator11FreeListOptE")
			qt.Assert(t, qt.IsTrue(ok))
			c.blocks.Vtable = vtable.Addr + 16
			qt.Check(t, qt.DeepEquals(l.FreeList, c.blocks))
			qt.Check(t, qt.DeepEquals(l.ShardCores, c.cores))
		})
	}
}

// Missing fields are named, with what they cost.
func TestLiveBuffersNotFound(t *testing.T) {
	b := image(t, "0.81.1")
	for _, name := range []string{
		implLive, "AllocatorImpl::get_num_allocated_buffers const", "distributed::MeshDeviceImpl::allocator_impl() const",
		"SubDeviceManager::allocator const", deviceAllocatorImpl, freeListStatistics, bufferNumCores,
	} {
		name := mangle(name)
		b = bytes.ReplaceAll(b, []byte(name), bytes.Replace([]byte(name), []byte("tt_metal"), []byte("tt_petal"), 1))
	}
	l, err := Derive(open(t, b))
	qt.Assert(t, qt.IsNil(err))
	for _, name := range []string{
		"Allocator.allocated_buffers_", "SubDeviceManager.sub_device_allocators_", "MeshDevice.sub_device_manager_tracker_",
		"Device.sub_device_manager_tracker_", "FreeListOpt.blocks", "Buffer.shard_cores",
	} {
		qt.Check(t, qt.IsNil(l.Fields[name]), qt.Commentf("%s", name))
		qt.Check(t, qt.Not(qt.Equals(missing(l, name), "")), qt.Commentf("%s", name))
		qt.Check(t, qt.Not(qt.Equals(costs[name], "")), qt.Commentf("%s", name))
	}
	qt.Check(t, qt.Equals(l.FreeList.Sizes, 0))
	qt.Check(t, qt.IsNil(l.ShardCores.Cores))
}
