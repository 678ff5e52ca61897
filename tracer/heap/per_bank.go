package heap

// This file finds how much of their banks live buffers take.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// errUnknownPerBank means that the bytes per bank of some buffers are unknown.
var errUnknownPerBank = errors.New("bytes per bank unknown")

// setPerBank sets the banks of Buffers and the bytes in each. The pages of interleaved ones
// are spread over all banks. For sharded ones, the size comes from the allocator's free
// list, and the number of banks from the Buffer.
func (r *reader) setPerBank(list []candidate, allocator uint64, banks *[event.BankedRegions]Bank) error {
	sharded := make(map[event.Region][]*candidate)
	for i := range list {
		c := &list[i]
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
		manager, err := readWord(r.memory, allocator+uint64(r.Kernel.Managers[region]))
		if err != nil {
			return err
		}
		n := 0
		for _, c := range some {
			if c.shards == 0 || c.shards > banks[region].Banks {
				c.shards = 0
			}
		}
		if err := r.blocks(manager, some); err != nil {
			return err
		}
		for _, c := range some {
			if c.perBank*uint64(c.shards) < word(c.window, r.size) {
				c.perBank, n = 0, n+1
			}
		}
		if n > 0 {
			unknown = append(unknown, fmt.Errorf("%d sharded buffers in %s: %w", n, region, errUnknownPerBank))
		}
	}
	return errors.Join(unknown...)
}

// rangeBytes is the size of a CoreRange: x0, y0, x1, y1 as u64, and coreBytes that of a
// core.
const (
	rangeBytes = 32
	coreBytes  = 16
	maxRanges  = 1 << 12
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
	objects := make([]uint64, len(list))
	for i, c := range list {
		objects[i] = c.impl
	}
	pieces := piecesOf(objects, max(grid, cores, shards, choice)+16)
	if err := r.memory.read(pieces); err != nil {
		return err
	}
	var onGrid []*candidate
	var ranges []piece
	for i, c := range list {
		b := pieces[i].data
		switch {
		case !pieces[i].ok:
		case (b[choice] == 1) == s.GridIfSet:
			if n, ok := elements(word(b, grid), word(b, grid+8), rangeBytes, maxRanges); ok && n > 0 {
				onGrid = append(onGrid, c)
				ranges = append(ranges, piece{address: word(b, grid), data: make([]byte, n*rangeBytes)})
			}
		default:
			n, ok := elements(word(b, cores), word(b, cores+8), coreBytes, maxCores)
			if !ok {
				continue
			}
			c.shards = uint32(n)
			if shards >= 0 {
				c.shards = uint32(min(uint64(n), word(b, shards)))
			}
		}
	}
	if err := r.memory.read(ranges); err != nil {
		return err
	}
	for i, c := range onGrid {
		if ranges[i].ok {
			c.shards = coresIn(ranges[i].data)
		}
	}
	return nil
}

// coresIn is the number of cores in CoreRanges; 0 if they are invalid.
func coresIn(ranges []byte) (n uint32) {
	for ; len(ranges) >= rangeBytes; ranges = ranges[rangeBytes:] {
		x0, y0, x1, y1 := word(ranges, 0), word(ranges, 8), word(ranges, 16), word(ranges, 24)
		if x1 < x0 || y1 < y0 || x1 >= 1<<8 || y1 >= 1<<8 {
			return 0
		}
		n += uint32((x1 - x0 + 1) * (y1 - y0 + 1))
	}
	return n
}

// blocks sets the bytes per bank of Buffers from a manager's free list. The list changes
// meanwhile, but not the blocks of buffers that stay.
func (r *reader) blocks(manager uint64, list []*candidate) error {
	f := &r.Layout.FreeList
	if f.Sizes == 0 {
		return nil // reported by setPerBank
	}
	at, ok, err := r.freeList(manager)
	if err != nil || !ok {
		return err
	}
	wanted := make(map[uint64]*candidate, len(list))
	for _, c := range list {
		wanted[word(c.window, r.address)] = c
	}
	end := slices.Max(append([]int32{f.Addresses, f.Sizes, f.Base}, f.Flags...)) + 16
	for range maxRereads {
		header, err := readBytes(r.memory, at, int(end))
		if err != nil {
			return err
		}
		found, err := readBlocks(r.memory, header, f)
		if errors.Is(err, errUnreadable) {
			continue // it has grown
		}
		if err != nil {
			return err
		}
		for address, size := range found {
			if c := wanted[address]; c != nil && c.perBank == 0 {
				c.perBank = size
			}
		}
		after, err := readBytes(r.memory, at, int(end))
		if err != nil {
			return err
		}
		if slices.Equal(header, after) {
			return nil
		}
		for _, c := range list {
			c.perBank = 0
		}
	}
	return nil
}

// readBlocks reads the allocated blocks of a free list: sizes by address, in bytes of each
// bank.
func readBlocks(m memory, header []byte, f *layout.FreeList) (map[uint64]uint64, error) {
	addresses, err := readVector(m, header[f.Addresses:], 8, maxElements)
	if err != nil {
		return nil, err
	}
	sizes, err := readVector(m, header[f.Sizes:], 8, maxElements)
	if err != nil {
		return nil, err
	}
	n := min(len(addresses), len(sizes)) / 8
	used := make([]bool, n)
	for i := range used {
		used[i] = true
	}
	for _, flag := range f.Flags {
		flags, err := readVector(m, header[flag:], 1, maxElements)
		if err != nil {
			return nil, err
		}
		for i := range used {
			used[i] = used[i] && i < len(flags) && flags[i] != 0
		}
	}
	blocks := make(map[uint64]uint64)
	base := word(header, int(f.Base))
	for i := range used {
		if used[i] {
			blocks[base+binary.LittleEndian.Uint64(addresses[i*8:])] = word(sizes, i*8)
		}
	}
	return blocks, nil
}
