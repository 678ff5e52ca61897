"""The hybrid allocator: buffers that are placed on single cores, beside one in all banks.

Each checkpoint has what the library counts for the buffers in all banks, and writes the
addresses of the others by core to the file TTMEM_CORES.
"""

import json
import os
import sys

os.environ["TT_METAL_ALLOCATOR_MODE_HYBRID"] = "1"

import ttnn  # noqa: E402: after the mode is set
from device import Checkpoints, close_device, open_device  # noqa: E402


def on_cores(device, cores, bytes_per_core):
    """A buffer with a shard on each core of a rectangle."""
    x0, y0, x1, y1 = cores
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(x0, y0), ttnn.CoreCoord(x1, y1))])
    shard = ttnn.ShardSpec(grid, [1, bytes_per_core], ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard)
    config.experimental_set_per_core_allocation(True)
    count = (x1 - x0 + 1) * (y1 - y0 + 1)
    tensor = ttnn.empty([count, bytes_per_core], ttnn.uint8, ttnn.ROW_MAJOR_LAYOUT, device, config)
    return tensor, cores, bytes_per_core


def placed(buffers):
    """What is on which core, by the library's own account: [x, y, address, bytes]."""
    first = ttnn.MeshCoordinate(0, 0)
    return [
        [x, y, int(tensor.experimental_per_core_buffer_address(first, ttnn.CoreCoord(x, y))), size]
        for tensor, (x0, y0, x1, y1), size in buffers
        for y in range(y0, y1 + 1)
        for x in range(x0, x1 + 1)
    ]


def main():
    device = open_device()
    check = Checkpoints()
    cores = open(os.environ["TTMEM_CORES"], "w")

    def checkpoint(name, buffers):
        check(name, device)
        cores.write(json.dumps({"name": name, "placed": placed(buffers)}) + "\n")
        cores.flush()

    grid = device.compute_with_storage_grid_size()
    small = [on_cores(device, (x, y, x, y), 20 << 10) for y in range(grid.y) for x in range(grid.x)]
    checkpoint("small", small)
    everywhere = ttnn.empty([1, 1, 32, 32 * 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    checkpoint("everywhere", small)
    relu = ttnn.relu(ttnn.empty([1, 1, 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device))
    checkpoint("circular buffers", small)
    del small[:8]
    checkpoint("a row freed", small)
    wide = on_cores(device, (0, 0, 3, 1), 40 << 10)
    checkpoint("wide", [*small, wide])
    del small[-3:]
    uneven = on_cores(device, (0, 0, grid.x - 1, grid.y - 1), 8 << 10)
    checkpoint("uneven", [*small, wide, uneven])
    if len(sys.argv) > 1:
        print("holding", flush=True)
        sys.stdin.read()
    del wide
    checkpoint("wide freed", [*small, uneven])
    del small, uneven
    checkpoint("all freed", [])
    del everywhere, relu
    close_device(device)


main()
