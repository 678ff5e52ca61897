package heap

// This file finds how many bytes live buffers take in each of their banks.

import (
	"errors"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// errUnknownPerBank means that the bytes per bank of some buffers are unknown.
var errUnknownPerBank = errors.New("bytes per bank unknown")

// LacksSizesOnly reports whether an error of Read means only that the bytes per bank of some
// buffers are unknown, which are 0 then. Everything else was read.
func LacksSizesOnly(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(several.Unwrap(), func(err error) bool { return !LacksSizesOnly(err) })
	}
	return errors.Is(err, errUnknownPerBank)
}

// setPerBank sets the banks of Buffers and the bytes in each. The pages of interleaved ones
// are spread over all banks. For sharded ones, the size comes from the allocator's free
// list, and the number of banks from the Buffer.
func (r *reader) setPerBank(list []*candidate, allocator uint64, banks *[event.BankedRegions]Bank) error {
	sharded := make(map[event.Region][]*candidate)
	for _, c := range list {
		var e event.Event
		r.Fill(&e, c.window)
		if int(e.Region) >= event.BankedRegions {
			continue
		}
		if e.Layout.Sharded() {
			sharded[e.Region] = append(sharded[e.Region], c)
			continue
		}
		c.shards, c.perBank = banks[e.Region].AllocatedPerBank(e.SizeBytes, e.PageSizeBytes, bpf.KernelShardRequest{})
	}
	var unknown []error
	for region, some := range sharded {
		if err := r.countShards(some); err != nil {
			return err
		}
		if err := r.findPerCore(some); err != nil {
			return err
		}
		for _, c := range some {
			if c.shards > banks[region].Banks {
				c.shards = 0
			}
		}
		if err := r.blocks(allocator+uint64(r.Kernel.Managers[region]), some); err != nil {
			return err
		}
		n := 0
		for _, c := range some {
			if c.perCore || c.perBank*uint64(c.shards) < word(c.window, int(r.Kernel.Size)) {
				c.perBank, n = 0, n+1
			}
		}
		if n > 0 {
			unknown = append(unknown, fmt.Errorf("%d sharded buffers in %s: %w", n, region, errUnknownPerBank))
		}
	}
	return errors.Join(unknown...)
}

// findPerCore finds the Buffers that the hybrid allocator placed on single cores.
func (r *reader) findPerCore(list []*candidate) error {
	if r.Kernel.PerCore == bpf.NoField {
		return nil
	}
	pieces, err := r.readOf(list, r.Kernel.PerCore, 1)
	if err != nil {
		return err
	}
	for i, c := range list {
		c.perCore = pieces[i].OK && pieces[i].Data[0] == 1
	}
	return nil
}

// rangeBytes is the size of a CoreRange: x0, y0, x1, y1 as u64, and coreBytes that of a
// core.
const (
	rangeBytes = 32
	coreBytes  = 16
	maxCores   = 1 << 16
)

// countShards sets the number of banks on which Buffers have shards; 0 if unknown.
func (r *reader) countShards(list []*candidate) error {
	s := &r.Layout.ShardCores
	at := func(c layout.Chain) int {
		if len(c) == 0 {
			return -1
		}
		return int(c[len(c)-1])
	}
	grid, cores, shards, choice := at(s.Grid), at(s.Cores), at(s.Shards), at(s.Choice)
	if grid < 0 || cores < 0 || choice < 0 {
		return nil // reported by setPerBank
	}
	pieces, err := r.readOf(list, 0, max(grid, cores, shards, choice)+16)
	if err != nil {
		return err
	}
	for i, c := range list {
		b := pieces[i].Data
		switch {
		case !pieces[i].OK:
		case (b[choice] == 1) == s.GridIfSet:
			o := r.objects()
			for _, cores := range o.coreRanges(span{word(b, grid), word(b, grid+8)}) {
				c.shards += (uint32(cores.X1-cores.X0) + 1) * (uint32(cores.Y1-cores.Y0) + 1)
			}
			if err := onlyStale(o.err); err != nil {
				return err
			}
		default:
			if n, ok := elements(word(b, cores), word(b, cores+8), coreBytes, maxCores); ok {
				c.shards = uint32(n)
				if shards >= 0 {
					c.shards = uint32(min(uint64(n), word(b, shards)))
				}
			}
		}
	}
	return nil
}

// blocks sets the bytes per bank of Buffers from the free list of a BankManager, whose pointer is
// at an address. While it is read the list may change, but not the blocks of live buffers.
func (r *reader) blocks(manager uint64, list []*candidate) error {
	f := &r.Layout.FreeList
	if f.Sizes == 0 {
		return nil // reported by setPerBank
	}
	o := r.objects()
	at := r.freeList(o, o.word(manager))
	if at == 0 || o.err != nil {
		return o.err
	}
	wanted := make(map[uint64]*candidate, len(list))
	for _, c := range list {
		wanted[word(c.window, int(r.Kernel.Address))] = c
	}
	end := slices.Max(append([]int32{f.Addresses, f.Sizes, f.Base}, f.Flags...)) + 16
	for range maxRereads {
		o := r.objects()
		header := o.read(at, int(end))
		o.allocatedBlocks(header, f, func(address, size uint64) {
			if c := wanted[address]; c != nil && c.perBank == 0 {
				c.perBank = size
			}
		})
		after := o.read(at, int(end))
		if err := onlyStale(o.err); err != nil {
			return err
		}
		if o.err == nil && slices.Equal(header, after) {
			return nil
		}
		for _, c := range list { // the free list has changed
			c.perBank = 0
		}
	}
	return nil
}

// blocksAtOnce is the number of blocks that are read together.
const blocksAtOnce = 1 << 15

// allocatedBlocks calls found with the allocated blocks of a free list and their sizes in
// bytes of each bank.
func (o *objects) allocatedBlocks(header []byte, f *layout.FreeList, found func(address, size uint64)) {
	if o.err != nil {
		return
	}
	type vector struct{ begin, bytes uint64 }
	var vectors []vector // of addresses, of sizes, of flags
	blocks := maxBuffers
	for i, at := range append([]int32{f.Addresses, f.Sizes}, f.Flags...) {
		v := vector{word(header, int(at)), 8}
		if i >= 2 {
			v.bytes = 1
		}
		n, ok := elements(v.begin, word(header, int(at)+8), v.bytes, maxBuffers)
		if !ok {
			o.invalid()
		}
		vectors, blocks = append(vectors, v), min(blocks, n)
	}
	for first := 0; first < blocks && o.err == nil; first += blocksAtOnce {
		n := min(blocksAtOnce, blocks-first)
		var parts [][]byte
		for _, v := range vectors {
			parts = append(parts, o.read(v.begin+uint64(first)*v.bytes, n*int(v.bytes)))
		}
		for i := 0; i < n && o.err == nil; i++ {
			if !slices.ContainsFunc(parts[2:], func(flags []byte) bool { return flags[i] == 0 }) {
				found(word(header, int(f.Base))+word(parts[0], i*8), word(parts[1], i*8))
			}
		}
	}
}
