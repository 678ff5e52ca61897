"""Buffers whose data is in fewer banks than the region has: sharded in DRAM over 1 to 12 banks, in
L1 and L1_SMALL, and traces. A checkpoint after each."""

import ttnn
from device import Checkpoints, attempt, close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16


def sharded(device, region, cores, rows):
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores - 1, 0))})
    shard = ttnn.ShardSpec(grid, [rows, 64], ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, region, shard)
    return ttnn.empty([1, 1, rows * cores, 64], BF16, TILE, device, config)


def main():
    device = open_device(trace_region_size=1 << 20)
    check = Checkpoints()
    kept = []
    banks = device.dram_grid_size().x
    for n in range(1, banks + 1):
        kept.append(sharded(device, ttnn.BufferType.DRAM, n, 32 * n))
        check(f"DRAM in {n} of {banks} banks", device)
        if n % 3 == 0:
            kept.pop(0)
            check("one less", device)
    for n in (1, 2, 5, 7):
        kept.append(sharded(device, ttnn.BufferType.L1, n, 64))
        check(f"L1 on {n} cores", device)
    for n in (1, 3, 8):
        kept.append(sharded(device, ttnn.BufferType.L1_SMALL, n, 32))
        check(f"L1_SMALL on {n} cores", device)
    for n in (1, 2, 3):
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        kept.append(ttnn.empty([32 * n, 32], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG))
        attempt("a trace", lambda: ttnn.end_trace_capture(device, trace, cq_id=0))
        check(f"{n} traces", device)
    kept.clear()
    check("none", device)
    close_device(device)


main()
