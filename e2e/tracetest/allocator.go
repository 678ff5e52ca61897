package tracetest

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Regions are the regions by the names that programs write. They are constant.
var Regions = map[string]event.Region{
	"DRAM": event.DRAM, "L1": event.L1, "L1_SMALL": event.L1Small, "TRACE": event.Trace,
}

// A MemoryView is what the library's own allocator counts in a region.
type MemoryView struct {
	Banks            uint32 `json:"banks"`
	BytesPerBank     uint64 `json:"bytes_per_bank"`
	AllocatedPerBank uint64 `json:"allocated_per_bank"`
	Free             uint64 `json:"free"`
	LargestFree      uint64 `json:"largest_free"`
	// Blocks are the offsets and sizes of allocations, in any order; nil if the release
	// does not report them.
	Blocks [][2]uint64 `json:"blocks"`
}

// Differences says how a region differs from what the library counts.
func (v *MemoryView) Differences(got memory.Region, space *memory.Space) (list []string) {
	if got.BytesPerBank != v.AllocatedPerBank {
		list = append(list, fmt.Sprintf("%d B allocated in each bank, the library counts %d", got.BytesPerBank, v.AllocatedPerBank))
	}
	if total := v.AllocatedPerBank * uint64(v.Banks); got.AllocatedBytes != total && !perCore(space) {
		list = append(list, fmt.Sprintf("%d B allocated in all banks, the library counts %d", got.AllocatedBytes, total))
	}
	if got.CapacityBytesPerBank != v.BytesPerBank || v.BytesPerBank > 0 && got.Banks != v.Banks {
		list = append(list, fmt.Sprintf("capacity %d × %d B, the library has %d × %d", got.Banks, got.CapacityBytesPerBank, v.Banks, v.BytesPerBank))
	}
	return append(list, v.SpaceDifferences(got.FreeSpace, space)...)
}

// perCore reports whether a region has buffers on single cores, which are not in all banks.
func perCore(space *memory.Space) bool {
	return space != nil && slices.ContainsFunc(space.Blocks, func(b memory.Buffer) bool { return b.PerCore })
}

// SpaceDifferences says how the addresses of a region's buffers and holes differ from the
// library's own list of blocks.
func (v *MemoryView) SpaceDifferences(free *memory.FreeSpace, space *memory.Space) (list []string) {
	if v.BytesPerBank == 0 {
		return nil // the region does not exist
	}
	if free == nil || space == nil || !space.Known() {
		return []string{"what is free is not known"}
	}
	if want := (memory.FreeSpace{FreeBytesPerBank: v.Free, LargestFreeBytesPerBank: v.LargestFree}); *free != want || space.FreeSpace != want {
		list = append(list, fmt.Sprintf("free %+v, and %+v in the list of addresses; the library counts %+v", *free, space.FreeSpace, want))
	}
	if v.Blocks == nil {
		return list
	}
	var blocks [][2]uint64
	for _, b := range space.Blocks {
		blocks = append(blocks, [2]uint64{b.Address - space.Start, b.BytesPerBank})
	}
	slices.SortFunc(v.Blocks, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	if !slices.Equal(blocks, v.Blocks) {
		list = append(list, fmt.Sprintf("blocks %v, the library has %v", blocks, v.Blocks))
	}
	return list
}
