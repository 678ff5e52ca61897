package event

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
)

// messages are texts of exceptions of releases from 0.60 to 0.81, with figures. A text about memory
// whose figures are not known, or not unambiguous, has none.
var messages = []struct {
	text string
	want Limits
}{
	{"TT_FATAL @ /project/tt_metal/impl/allocator/bank_manager.cpp:514: false\ninfo:\nOut of Memory: Not enough space to allocate 33554432 B L1 buffer across 64 banks, where each bank needs to store 524288 B, but bank size is 1393312 B (allocated: 688128 B, free: 705184 B, largest free block: 49824 B).\nbacktrace:\n --- /lib/libtt_metal.so(+0x1)",
		Limits{Reason: ReasonOutOfMemory, Region: L1, SizeBytes: 33554432, Banks: 64, BytesPerBank: 524288, NeededBytes: 524288, AvailableBytes: 1393312,
			Bank: BankState{CapacityBytes: 1393312, AllocatedBytes: 688128, FreeBytes: 705184, LargestFreeBytes: 49824}}},
	{"Out of Memory: Not enough space to allocate 2016 B L1_SMALL buffer across 63 banks, where each bank needs to store 32 B",
		Limits{Reason: ReasonOutOfMemory, Region: L1Small, SizeBytes: 2016, Banks: 63, BytesPerBank: 32, NeededBytes: 32}},
	{"Out of Memory: Not enough space after considering dependencies to allocate 4096 B L1 across 2 banks (2048 B per bank), bank size is 9000 B (allocated: 1 B, free: 2 B, largest free block: 3 B)",
		Limits{Reason: ReasonOutOfMemory, Region: L1, SizeBytes: 4096, Banks: 2, BytesPerBank: 2048, NeededBytes: 2048, AvailableBytes: 9000,
			Bank: BankState{CapacityBytes: 9000, AllocatedBytes: 1, FreeBytes: 2, LargestFreeBytes: 3}}},
	{"Out of Memory: Not enough space after considering dependencies to allocate 4096 B L1 across 2 banks (2048 B per bank), bank size is 9000 B (allocated: 0 B, free: 9000 B, largest free block: 9000 B). After subtracting 1 dependency range(s) and 2 additional occupied range(s), 1200 B remained placeable across 3 window(s), largest 700 B.",
		Limits{Reason: ReasonOutOfMemory, Region: L1, SizeBytes: 4096, Banks: 2, BytesPerBank: 2048, NeededBytes: 2048, AvailableBytes: 9000,
			Bank: BankState{CapacityBytes: 9000, FreeBytes: 1200, LargestFreeBytes: 700}}},
	{"Out of Memory: Not enough space to allocate 2016 B L1_SMALL buffer across 63 banks, where each bank needs to store 32 B, but bank size is only 16 B",
		Limits{Reason: ReasonOutOfMemory, Region: L1Small, SizeBytes: 2016, Banks: 63, BytesPerBank: 32, NeededBytes: 32, AvailableBytes: 16}},
	{"Out of Memory: Not enough space after considering dependencies to allocate 4096 B L1 across 2 banks (2048 B per bank)",
		Limits{Reason: ReasonOutOfMemory, Region: L1, SizeBytes: 4096, Banks: 2, BytesPerBank: 2048, NeededBytes: 2048}},
	{"Out of Memory: Cannot allocate at an address below 1024. Allocation at 96", Limits{Reason: ReasonOutOfMemory}},

	{"TT_THROW @ /project/tt_metal/impl/program/program.cpp:1763: tt::exception\ninfo:\nStatically allocated circular buffers in program 0 clash with L1 buffers on core range [0-0 - 0-0]. L1 buffer allocated at 221184 and static circular buffer region ends at 756928",
		Limits{Reason: ReasonStaticClash, Region: CB, Static: CircularBuffer, Cores: "[0-0 - 0-0]", NeededBytes: 756928, AvailableBytes: 221184}},
	{"Statically allocated dataflow buffers in program 2 clash with L1 buffers on core range [(x=0,y=0) - (x=7,y=3)]. L1 buffer allocated at 122880 and static dataflow buffer region ends at 267616",
		Limits{Reason: ReasonStaticClash, Region: CB, Static: DataflowBuffer, Cores: "[(x=0,y=0) - (x=7,y=3)]", NeededBytes: 267616, AvailableBytes: 122880}},
	{"Statically allocated circular buffers on core range [(x=0,y=0) - (x=0,y=0)] grow to 2200704 B which is beyond max L1 size of 1499136 B",
		Limits{Reason: ReasonStaticTooLarge, Region: CB, Static: CircularBuffer, Cores: "[(x=0,y=0) - (x=0,y=0)]", NeededBytes: 2200704, AvailableBytes: 1499136}},
	{"Statically allocated dataflow buffers on core range [0-0 - 7-7] grow to 1706080 B which is beyond max L1 size of 1499136 B",
		Limits{Reason: ReasonStaticTooLarge, Region: CB, Static: DataflowBuffer, Cores: "[0-0 - 7-7]", NeededBytes: 1706080, AvailableBytes: 1499136}},
	{"Circular buffers on service-core range [0-0 - 0-0] in program 3 clash with ServiceCoreManager-allocated L1 (lowest service allocation at 900, CB region ends at 1000)",
		Limits{Reason: ReasonStaticTooLarge, Region: CB, Static: CircularBuffer, Cores: "[0-0 - 0-0]", NeededBytes: 1000, AvailableBytes: 900}},
	{"DFB 4: ring size (2097152 bytes) exceeds Tensix unreserved L1 size (1393312 bytes); reduce capacity, stride, or entry_size",
		Limits{Reason: ReasonStaticTooLarge, Region: CB, Static: DataflowBuffer, NeededBytes: 2097152, AvailableBytes: 1393312}},

	{"Creating trace buffers of size 5120B on MeshDevice 1, but only 4096B is allocated for trace region.",
		Limits{Reason: ReasonTraceTooSmall, Region: Trace, NeededBytes: 5120, AvailableBytes: 4096}},

	{"Program size (656) too large for kernel config buffer (384) on TENSIX, 272 B over:\n  runtime args  608 B",
		Limits{Reason: ReasonKernelConfigTooSmall, Region: Kernel, NeededBytes: 656, AvailableBytes: 384}},
	{"Program size (71000) too large for kernel config buffer (70656) on TENSIX",
		Limits{Reason: ReasonKernelConfigTooSmall, Region: Kernel, NeededBytes: 71000, AvailableBytes: 70656}},
	{"Kernel binary size exceeds prefetcher cache size (70000, 65536)",
		Limits{Reason: ReasonKernelConfigTooSmall, Region: Kernel, NeededBytes: 70000, AvailableBytes: 65536}},

	{"LayerNorm streaming circular buffers require 118784 bytes, but only 109592 bytes of the allocator's L1 span are available", refused(118784, 109592)},
	{"ttnn.pad: padded row of 800064 B does not fit in the per-core L1 budget (643744 B)", refused(800064, 643744)},
	{"ttnn.concat: required CB page size (900000 B) exceeds per-core L1 capacity (800000 B); op cannot fit on this device.", refused(900000, 800000)},
	{"ttnn.concat: double-buffered tile-height chunk (2 x 32 x 64 = 4096 B) exceeds L1 capacity (2048 B)", refused(4096, 2048)},
	{"qkv_causal_conv1d_silu: channel_chunk_size = 8 needs 900 bytes of L1 per core, only 800 are available", refused(900, 800)},
	{"Exp ring joint SDPA CBs need 900 B but only 800 B of L1 are usable at this chunk shape (q_chunk=1, k_chunk=2, passes=3); reduce k_chunk_size.", refused(900, 800)},
	{"MatmulUnifiedProgramConfig: DFBs for a 4x4-tile C slice with K_chunk_tiles=2 do not fit (needs 900 B, budget 800 B, max DFB extent 7 B: A slice 1 B)", refused(900, 800)},
	{"MatmulUnifiedProgramConfig: a 4x4-tile C slice does not fit L1 even with K_chunk_tiles=1 (budget 800 B, max DFB extent 7 B)", refused(0, 800)},
	{"conv3d: the static circular buffers need 900 B at out_subblock_h=1 (M_t=1) but only 800 B of L1 lie above the allocator base", refused(900, 800)},
	{"RM reshape dest staging does not fit in L1: need at least 600 B dest + 300 B source, have 800 B", refused(900, 800)},
	{"scratch=600 B + CBs=300 B exceed L1 budget (800 B)", refused(900, 800)},
	{"H2DStreamService: data CB 600 B + metadata CB 200 B + scratch reserve 100 B exceeds service-core free L1 800 B", refused(900, 800)},
	{"H2DStreamService: tensor page 900 B exceeds service-core CB L1 budget 800 B; use a layout with smaller pages", refused(900, 800)},
	{"Borrowed-memory DFB id 3 (from TensorParameter 'x') has total size 900 B, which exceeds the borrowed Buffer's per-bank size of 800 B.", refused(900, 800)},
	{"Fused source circular buffer size (900 B) exceeds its L1 buffer bank (800 B)", refused(900, 800)},
	{"Cannot set circular buffer size to 900. This is larger than the associated dynamically allocated L1 buffer bank size of 800 B", refused(900, 800)},
	{"Negate H reduce: acc + ineg (900 B for 7 tiles) would not fit in available L1 (800 B). Caller must", refused(900, 800)},
	{"Not enough L1 for even a single CB page: aligned_input_stick_nbytes=900 exceeds l1_for_cb=800", refused(900, 800)},
	{"D2HStreamService: service-core free L1 (800 B) too small for reservations (900 B)", refused(900, 800)},
	{"RepeatCodegen: a 900-byte row-major CB slot does not fit in free L1", refused(900, 0)},
	{"Workload of Tiles 30 at Tile Size 20 (times 2 for output) exceeds L1 capacity 800", refused(0, 800)},
	{"DRAM Auto slice could not find valid slice configuration. Tried up to 8 slices for height-slicing on output dimension 9. Available L1: 800 bytes. Operation", refused(0, 800)},
	{"Cannot fit Pool2D operation in L1 memory with DRAM slicing. The smallest input slice (size=4)", refused(0, 0)},
	{"not enough circular buffer memory for softmax", refused(0, 0)},
	{"Worker L1 size 900 is larger than max size 800", refusedSetting("worker_l1_size", 900, 800)},
	{"Reserved size must be less than bank size", refusedSetting("l1_small_size", 0, 0)},
}

func refused(needed, available uint64) Limits {
	return Limits{Reason: ReasonRefused, Region: L1, NeededBytes: needed, AvailableBytes: available}
}

func refusedSetting(setting string, needed, available uint64) Limits {
	l := refused(needed, available)
	l.Setting = setting
	return l
}

func TestLimitsOfEveryRelease(t *testing.T) {
	for _, m := range messages {
		got, ok := LimitsIn(m.text)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s", m.text))
		qt.Check(t, qt.Equals(got, m.want), qt.Commentf("%s", m.text))
	}
}

// TestOtherTextsAreNotAboutMemory, although some mention it.
func TestOtherTextsAreNotAboutMemory(t *testing.T) {
	for _, text := range []string{
		"", "info:\n", "Invalid arguments to reshape", "Input tensor memory layout must be INTERLEAVED but got 2",
		"Only INTERLEAVED memory layout is supported for inputs, got 3", "DFB 3: TRISC ring extent (7 L1 units of 16 bytes) exceeds uint16_t; reduce capacity",
		"Number of shards along width 9 must not exceed number of cores 8", "Output circular buffer index 40 exceeds maximum value 31",
		"Shard page size must currently have L1 aligned page size",
	} {
		l, ok := LimitsIn(text)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s: %+v", text, l))
	}
}

// FuzzLimits: a process throws what text it likes.
func FuzzLimits(f *testing.F) {
	for _, m := range messages {
		f.Add(m.text)
	}
	f.Add("Not enough space to allocate 99999999999999999999 B L1 buffer across 99999999999 banks, where each bank needs to store 0 B")
	f.Add("18446744073709551615 B + CBs=18446744073709551615 B exceed L1 budget (1 B)")
	f.Fuzz(func(t *testing.T, message string) {
		var l Limits
		fuzztest.Bounded(t, len(message), 100, func() { l, _ = LimitsIn(message) })
		qt.Check(t, qt.IsTrue(l.Region < NumRegions))
		qt.Check(t, qt.IsTrue(l.Reason == ReasonOutOfMemory || l.BytesPerBank == 0 && l.SizeBytes == 0))
	})
}
