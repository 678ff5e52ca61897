package layout

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// The functions that show where a running process keeps its allocated buffers. Allocators
// are called AllocatorImpl from 0.65.1 on.
const (
	implLive      = "_ZNK2tt8tt_metal13AllocatorImpl21get_allocated_buffersE"
	allocatorLive = "_ZNK2tt8tt_metal9Allocator21get_allocated_buffersE"

	implNumLive      = "_ZNK2tt8tt_metal13AllocatorImpl25get_num_allocated_buffersE"
	allocatorNumLive = "_ZNK2tt8tt_metal9Allocator25get_num_allocated_buffersE"

	deviceAllocatorImpl = "_ZNK2tt8tt_metal6Device14allocator_implEv"
	deviceAllocator     = "_ZNK2tt8tt_metal6Device9allocatorEv"
	meshAllocatorImpl   = "_ZNK2tt8tt_metal11distributed10MeshDevice14allocator_implEv"
	meshAllocator       = "_ZNK2tt8tt_metal11distributed10MeshDevice9allocatorEv"
	meshImplAllocator   = "_ZNK2tt8tt_metal11distributed14MeshDeviceImpl14allocator_implEv"
	managerAllocator    = "_ZNK2tt8tt_metal16SubDeviceManager9allocatorE"
	trackerDefault      = "_ZNK2tt8tt_metal23SubDeviceManagerTracker30get_default_sub_device_managerEv"
	trackerActive       = "_ZNK2tt8tt_metal23SubDeviceManagerTracker29get_active_sub_device_managerEv"

	freeListVtable     = "_ZTVN2tt8tt_metal9allocator11FreeListOptE"
	freeListStatistics = "_ZNK2tt8tt_metal9allocator11FreeListOpt14get_statisticsE"
	freeListDeallocate = "_ZN2tt8tt_metal9allocator11FreeListOpt10deallocateEm"

	coresOfSpec = "_ZNK2tt8tt_metal22BufferDistributionSpec19num_cores_with_dataE"
	coresOfGrid = "12CoreRangeSet9num_coresEv"
)

// liveBuffers finds the allocators, their live buffers, and what each of those takes of its
// banks.
func (d *deriver) liveBuffers() {
	d.field("Allocator.allocated_buffers_", 8,
		from(copiedSet, implLive, allocatorLive),
		from(returned, implLive, allocatorLive),
		from(countedSet, implNumLive, allocatorNumLive))
	d.allocators()
	d.freeList()
	d.shardCores()
}

// copiedSet finds the set that get_allocated_buffers() returns a copy of: it stores the
// numbers of buckets and of elements in the result at 8 and 0x18.
func copiedSet(f *flow) (Chain, error) {
	at := func(offset int32) (Chain, error) {
		return f.first(func(s *step) (Chain, bool) {
			if to, ok := direct(s.accessed(0)); !ok || to[0] != offset || !s.is(x86asm.MOV, 8) {
				return nil, false
			}
			return direct(s.operand(1).loaded(1))
		})
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

// countedSet finds the set whose number of elements, at 0x18, is returned.
func countedSet(f *flow) (Chain, error) {
	c, err := result(f)
	if err != nil || len(c) != 1 || c[0] < 0x18 {
		return nil, errShape
	}
	return Chain{c[0] - 0x18}, nil
}

// allocators finds the allocators of a device: a vector in each SubDeviceManager, of which
// its SubDeviceManagerTracker has a default one and an active one; or one of the device
// itself.
func (d *deriver) allocators() {
	inDefault, _ := d.field("SubDeviceManagerTracker.default_sub_device_manager_", 8, from(result, trackerDefault))
	d.field("SubDeviceManagerTracker.active_sub_device_manager_", 8, from(result, trackerActive))
	vector, _ := d.field("SubDeviceManager.sub_device_allocators_", 8, from(checkedElement, managerAllocator))
	managers := slices.Concat(inDefault, vector, Chain{0})
	// tracker finds the object with the default SubDeviceManager or, if that call was
	// inlined, the path to its first allocator.
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
	pimpl := d.layout.Fields["MeshDevice.pimpl_"]
	d.field("MeshDevice.sub_device_manager_tracker_", 8,
		from(tracker, meshAllocatorImpl, meshAllocator),
		from(func(f *flow) (Chain, error) {
			c, err := tracker(f)
			if err != nil || len(pimpl) == 0 {
				return nil, errShape
			}
			return slices.Concat(pimpl, c), nil
		}, meshImplAllocator))
	const own = "Device.allocator_"
	c, err := d.chain(8, from(func(f *flow) (Chain, error) {
		c, err := returned(f)
		if err == nil && len(c) != 1 {
			err = errShape
		}
		return c, err
	}, deviceAllocatorImpl, deviceAllocator))
	if err == nil {
		d.layout.Fields[own] = c
		return
	}
	d.field("Device.sub_device_manager_tracker_", 8, from(tracker, deviceAllocatorImpl, deviceAllocator))
}

// checkedElement finds the vector of pointers of which a function checks an element for
// null: `mov rcx, [this+vector]; cmp qword ptr [rcx+rax*8], 0`.
var checkedElement = first(func(s *step) (Chain, bool) {
	if !s.is(x86asm.CMP, 8) || !s.has(1, 0) {
		return nil, false
	}
	return s.array(8).loaded(0)
})

// array is the base of an array, an element of which the step accesses; unknown if it
// accesses none with this scale.
func (s *step) array(scale uint8) value {
	m, _, ok := s.mem()
	base, bytes, ok1 := general(m.Base)
	index, _, ok2 := general(m.Index)
	if !ok || !ok1 || !ok2 || bytes != 8 || m.Scale != scale || m.Segment != 0 || s.op == x86asm.LEA {
		return value{}
	}
	if v := s.state.regs[base]; scale != 1 || v.root != unknown {
		return v
	}
	return s.state.regs[index] // with the scale 1 either register may be the base
}

// FreeList locates the blocks of an allocator::FreeListOpt: vectors with one element for
// each block. A block is allocated if its byte in each vector of Flags is not 0.
type FreeList struct {
	// Vtable is the first word of a FreeListOpt, before the load bias is added.
	Vtable uint64
	// Addresses and Sizes are vectors of 8-byte elements; Base is added to the addresses.
	Addresses, Sizes, Base int32
	Flags                  []int32
}

// freeList finds the fields of FreeListOpt, which has the sizes that were really allocated.
func (d *deriver) freeList() {
	const name = "FreeListOpt.blocks"
	l := FreeList{Vtable: d.vtable("FreeListOpt.vtable", freeListVtable)}
	for _, part := range []struct {
		to *int32
		source
	}{
		{&l.Addresses, from(subtracted(1), freeListStatistics)},
		{&l.Base, from(subtractedFirst, freeListDeallocate)},
		{&l.Sizes, from(func(f *flow) (Chain, error) {
			return except(Chain{l.Addresses}, elements(8))(f)
		}, freeListStatistics)},
	} {
		c, err := d.chain(8, part.source)
		if err == nil && len(c) != 1 {
			err = errShape
		}
		if err != nil {
			d.miss(name, err.Error())
			return
		}
		*part.to = c[0]
	}
	fl, err := d.flowOf(freeListStatistics)
	if err != nil {
		d.miss(name, err.Error())
		return
	}
	for _, c := range fl.all(elements(1)) {
		if len(c) == 1 && c[0] > 0 && c[0] < maxOffset && c[0]%8 == 0 {
			l.Flags = append(l.Flags, c[0])
		}
	}
	if len(l.Flags) == 0 || len(l.Flags) > 2 {
		d.miss(name, "FreeListOpt::get_statistics() reads no flags of blocks")
		return
	}
	d.layout.FreeList = l
	d.layout.Fields[name] = Chain{l.Addresses}
}

// elements returns the vector in the second argument from which a step reads an element of
// this width.
func elements(bytes int) func(*step) (Chain, bool) {
	return func(s *step) (Chain, bool) {
		if s.bytes != bytes || bytes == 1 && s.op != x86asm.CMP {
			return nil, false
		}
		return s.array(uint8(bytes)).loaded(1)
	}
}

// subtracted finds the vector whose size a function computes from its end and beginning.
func subtracted(arg uint64) finder {
	return first(func(s *step) (Chain, bool) {
		if s.op != x86asm.SUB && s.op != x86asm.CMP {
			return nil, false
		}
		end, ok := s.operand(0).loaded(arg)
		begin, is := s.operand(1).loaded(arg)
		return begin, ok && is && follows(end, begin)
	})
}

// follows reports whether a word of an object directly follows another.
func follows(next, word Chain) bool {
	n := len(word) - 1
	return len(next) == n+1 && slices.Equal(next[:n], word[:n]) && next[n] == word[n]+8
}

// subtractedFirst finds the field that a function subtracts from its argument.
var subtractedFirst = first(func(s *step) (Chain, bool) {
	if !s.is(x86asm.SUB, 8) || s.operand(0) != rooted(argument, 1) {
		return nil, false
	}
	return s.accessed(0)
})

// ShardCores locates the number of cores on which a sharded Buffer has shards: all of a
// CoreRangeSet, or as many of a vector of cores (16 bytes each) as there are shards. All
// are chains from Buffer*.
type ShardCores struct {
	// Choice is a byte that selects between them: the CoreRangeSet if it is 1 and GridIfSet
	// is true, or 0 and false.
	Choice    Chain
	GridIfSet bool
	Grid      Chain
	Cores     Chain // the vector
	Shards    Chain // the number of shards; nil if each of the cores has one
}

// shardCores finds what Buffer::num_cores() reads.
func (d *deriver) shardCores() {
	const name = "Buffer.shard_cores"
	fl, err := d.flowOf(bufferNumCores)
	var c ShardCores
	if err == nil {
		c, err = d.coresIn(fl)
	}
	for _, chain := range []Chain{c.Grid, c.Cores, c.Shards} {
		if err == nil && chain != nil {
			err = plausible(chain, 8)
		}
	}
	if err == nil {
		err = plausible(c.Choice, 1)
	}
	if err != nil {
		d.miss(name, fmt.Sprintf("Buffer::num_cores(): %v", err))
		return
	}
	d.layout.ShardCores = c
	d.layout.Fields[name] = c.Cores
}

func (d *deriver) coresIn(f *flow) (c ShardCores, err error) {
	at, grid := -1, -1
	for i := range f.steps {
		s := &f.steps[i]
		if choice, ok := comparesAny(1, s); ok && at < 0 && (s.has(1, 0) || s.has(1, 1)) {
			c.Choice, at = choice, i
		}
		name := f.callee(s)
		switch {
		case strings.HasSuffix(name, coresOfGrid):
			var ok bool
			if c.Grid, ok = s.state.arg(0).chain(0); ok {
				grid = i
			}
		case strings.HasPrefix(name, coresOfSpec):
			spec, ok := s.state.arg(0).chain(0)
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
				return slices.Concat(spec[:len(spec)-1], Chain{spec[len(spec)-1] + c[0]}, c[1:])
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
		if s.op == x86asm.RET || s.op == x86asm.JMP {
			c.GridIfSet = false
		}
	}
	return c, nil
}

// coresOfVector finds the vector of cores whose number is returned, or the number of shards
// if that is less: `mov rax, [end]; sub rax, [begin]; sar rax, 4; cmp shards, rax; cmovb
// rax, shards`.
func (f *flow) coresOfVector() (cores, shards Chain) {
	cores, err := subtracted(0)(f)
	if err != nil {
		return nil, nil
	}
	shards, _ = f.first(func(s *step) (Chain, bool) {
		_, register := s.args[1].(x86asm.Reg)
		if s.op != x86asm.CMP || !register || s.operand(1).root != unknown {
			return nil, false
		}
		return s.operand(0).loaded(0)
	})
	return cores, shards
}
