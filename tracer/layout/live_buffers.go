package layout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize/x86"
)

// The functions that are read several times. Allocators are called AllocatorImpl from 0.65.1
// on.
const (
	implLive      = "AllocatorImpl::get_allocated_buffers const"
	allocatorLive = "Allocator::get_allocated_buffers const"

	deviceAllocatorImpl = "Device::allocator_impl() const"
	deviceAllocator     = "Device::allocator() const"

	freeListStatistics = "allocator::FreeListOpt::get_statistics const"
	coresOfSpec        = "BufferDistributionSpec::num_cores_with_data const"
)

// liveBuffers finds the allocators, their live buffers, and the bytes of its banks that each
// buffer takes.
func (d *deriver) liveBuffers() {
	d.field("Allocator.allocated_buffers_", 8,
		from(copiedSet, implLive, allocatorLive),
		from(returned, implLive, allocatorLive),
		// the number of elements
		from(moved(result, -0x18), "AllocatorImpl::get_num_allocated_buffers const", "Allocator::get_num_allocated_buffers const"))
	d.allocators()
	d.attempt("FreeListOpt.blocks", d.freeList)
	d.attempt("Buffer.shard_cores", d.shardCores)
}

// copiedSet finds the set whose copy get_allocated_buffers() returns: it stores the numbers of
// buckets and of elements in the result at 8 and 0x18.
func copiedSet(f *flow) (Chain, error) {
	at := func(offset int32) (Chain, error) {
		return f.first(on(x86asm.MOV, 8, func(s *x86.Step) (Chain, bool) {
			if to, ok := direct(s.Accessed(0)); !ok || to[0] != offset {
				return nil, false
			}
			return direct(s.Operand(1).Loaded(1))
		}))
	}
	buckets, err := at(8)
	if err != nil {
		return nil, err
	}
	elements, err := at(0x18)
	if err != nil || elements[0]-buckets[0] != 0x10 {
		return nil, errShape
	}
	return Chain{buckets[0] - 8}, nil
}

// allocators finds the allocators of a device: a vector in each SubDeviceManager, of which
// its SubDeviceManagerTracker has a default one and an active one; or one of the device
// itself.
func (d *deriver) allocators() {
	inDefault, _ := d.field("SubDeviceManagerTracker.default_sub_device_manager_", 8,
		from(result, "SubDeviceManagerTracker::get_default_sub_device_manager() const"))
	d.field("SubDeviceManagerTracker.active_sub_device_manager_", 8,
		from(result, "SubDeviceManagerTracker::get_active_sub_device_manager() const"))
	vector, _ := d.field("SubDeviceManager.sub_device_allocators_", 8,
		from(single(checksElement), "SubDeviceManager::allocator const"))
	managers := slices.Concat(inDefault, vector, Chain{0})
	// tracker finds the object with the default SubDeviceManager. If that call was inlined, it
	// finds the path to its first allocator.
	tracker := func(f *flow) (Chain, error) {
		if c, err := passed("30get_default_sub_device_managerEv")(f); err == nil {
			return c, nil
		}
		c, err := returned(f)
		n := len(c) - len(managers)
		if err != nil || n <= 0 || len(managers) != 3 || !slices.Equal(c[n:], managers) {
			return nil, errShape
		}
		return c[:n], nil
	}
	inMesh := []source{
		from(tracker, "distributed::MeshDevice::allocator_impl() const", "distributed::MeshDevice::allocator() const"),
	}
	if pimpl := d.layout.Fields["MeshDevice.pimpl_"]; len(pimpl) > 0 {
		inMesh = append(inMesh, from(within(pimpl, tracker), "distributed::MeshDeviceImpl::allocator_impl() const"))
	}
	d.field("MeshDevice.sub_device_manager_tracker_", 8, inMesh...)
	if own, _, err := d.chain(8, from(moved(returned, 0), deviceAllocatorImpl, deviceAllocator)); err == nil {
		d.layout.Fields["Device.allocator_"] = own
		return
	}
	d.field("Device.sub_device_manager_tracker_", 8, from(tracker, deviceAllocatorImpl, deviceAllocator))
}

// checksElement finds the vector of pointers in which a step checks an element for null: `mov
// rcx, [this+vector]; cmp qword ptr [rcx+rax*8], 0`.
var checksElement = on(x86asm.CMP, 8, func(s *x86.Step) (Chain, bool) {
	if !s.Has(1, 0) {
		return nil, false
	}
	return s.Array(8).Loaded(0)
})

// FreeList locates the blocks of an allocator::FreeListOpt: vectors with one element for
// each block. A block is allocated if its byte in each vector of Flags is not 0.
type FreeList struct {
	// Vtable is the first word of a FreeListOpt, before the load bias is added.
	Vtable uint64
	// Addresses and Sizes are vectors of 8-byte elements; Base is added to the addresses.
	Addresses, Sizes, Base int32
	Flags                  []int32
}

// freeList finds the fields of FreeListOpt, which has the really allocated sizes.
func (d *deriver) freeList() error {
	l := FreeList{Vtable: d.vtable("FreeListOpt.vtable", "_ZTVN2tt8tt_metal9allocator11FreeListOptE")}
	offset := func(to *int32, find finder, function string) error {
		c, _, err := d.chain(8, from(moved(find, 0), function))
		if err == nil {
			*to = c[0]
		}
		return err
	}
	err := cmp.Or(
		offset(&l.Addresses, subtracted(1), freeListStatistics),
		offset(&l.Base, first(subtracts), "allocator::FreeListOpt::deallocate(m)"),
		offset(&l.Sizes, except(Chain{l.Addresses}, elements(8)), freeListStatistics))
	if err != nil {
		return err
	}
	fl, err := d.flowOf(freeListStatistics)
	if err != nil {
		return err
	}
	for _, c := range fl.all(elements(1)) {
		if len(c) == 1 && c[0] > 0 && c[0] < maxOffset && c[0]%8 == 0 {
			l.Flags = append(l.Flags, c[0])
		}
	}
	if len(l.Flags) == 0 || len(l.Flags) > 2 {
		return errors.New("FreeListOpt::get_statistics() reads no flags of blocks")
	}
	d.layout.FreeList = l
	d.layout.Fields["FreeListOpt.blocks"] = Chain{l.Addresses}
	return nil
}

// elements returns the vector in the second argument from which a step reads an element of
// this width.
func elements(bytes int) matcher {
	return func(s *x86.Step) (Chain, bool) {
		if s.MemBytes != bytes || bytes == 1 && s.Op != x86asm.CMP {
			return nil, false
		}
		return s.Array(uint8(bytes)).Loaded(1)
	}
}

// subtracted finds the vector whose size a function computes from its end and beginning.
func subtracted(arg uint64) finder {
	return first(func(s *x86.Step) (Chain, bool) {
		if s.Op != x86asm.SUB && s.Op != x86asm.CMP {
			return nil, false
		}
		end, ok := s.Operand(0).Loaded(arg)
		begin, is := s.Operand(1).Loaded(arg)
		return begin, ok && is && follows(end, begin)
	})
}

// follows reports whether a word of an object directly follows another.
func follows(next, word Chain) bool {
	return slices.Equal(next, word.Plus(8))
}

// ShardCores locates the number of cores on which a sharded Buffer has shards: all cores of a
// CoreRangeSet, or as many cores of a vector (16 bytes each) as there are shards. All are chains
// from Buffer*.
type ShardCores struct {
	// Choice is a byte that selects between them: the CoreRangeSet if it is 1 and GridIfSet
	// is true, or 0 and false.
	Choice    Chain
	GridIfSet bool
	Grid      Chain
	Cores     Chain // the vector
	Shards    Chain // the number of shards; nil if each of the cores has one
}

// shardCores finds the fields that Buffer::num_cores() reads.
func (d *deriver) shardCores() error {
	fl, err := d.flowOf(bufferNumCores)
	if err != nil {
		return err
	}
	c, err := d.coresIn(fl)
	if err == nil {
		err = cmp.Or(plausible(c.Choice, 1), plausible(c.Grid, 8), plausible(c.Cores, 8))
	}
	if err == nil && c.Shards != nil {
		err = plausible(c.Shards, 8)
	}
	if err != nil {
		return fmt.Errorf("Buffer::num_cores(): %w", err)
	}
	d.layout.ShardCores = c
	d.layout.Fields["Buffer.shard_cores"] = c.Cores
	return nil
}

func (d *deriver) coresIn(f *flow) (c ShardCores, err error) {
	at, grid := -1, -1
	for i, s := range f.steps {
		if choice, ok := compares(1, 0, 1)(s); ok && at < 0 {
			c.Choice, at = choice, i
		}
		name := f.callee(s)
		switch {
		case strings.HasSuffix(name, countCores):
			var ok bool
			if c.Grid, ok = s.State.Arg(0).Chain(0); ok {
				grid = i
			}
		case strings.HasPrefix(name, mangle(coresOfSpec)):
			spec, ok := s.State.Arg(0).Chain(0)
			if !ok {
				return c, errShape
			}
			g, err := d.flowOf(coresOfSpec)
			if err != nil {
				return c, err
			}
			within := func(c Chain) Chain {
				if c == nil {
					return nil
				}
				return slices.Concat(spec.Plus(c[0]), c[1:])
			}
			cores, shards := g.coresOfVector()
			c.Cores, c.Shards = within(cores), within(shards)
		}
	}
	if c.Cores == nil {
		c.Cores, c.Shards = f.coresOfVector()
	}
	if at < 0 || grid < at || c.Cores == nil {
		return c, errShape
	}
	// the path for a set byte comes first
	c.GridIfSet = true
	for _, s := range f.steps[at:grid] {
		if s.Op == x86asm.RET || s.Op == x86asm.JMP {
			c.GridIfSet = false
		}
	}
	return c, nil
}

// coresOfVector finds the vector of cores whose length is returned, or the number of shards if
// that is less: `mov rax, [end]; sub rax, [begin]; sar rax, 4; cmp shards, rax; cmovb rax,
// shards`.
func (f *flow) coresOfVector() (cores, shards Chain) {
	cores, err := subtracted(0)(f)
	if err != nil {
		return nil, nil
	}
	shards, _ = f.first(func(s *x86.Step) (Chain, bool) {
		_, register := s.Args[1].(x86asm.Reg)
		if s.Op != x86asm.CMP || !register || s.Operand(1).Root != x86.Unknown {
			return nil, false
		}
		return s.Operand(0).Loaded(0)
	})
	return cores, shards
}
