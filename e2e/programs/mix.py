"""Uses device memory in every way that ttnn offers, and stops at checkpoints.

Buffers in all regions and layouts, programs with circular and dataflow buffers,
views, graph capture, repeated deallocation, failures, program cache.
"""

import gc
import random

import ttnn
from device import Checkpoints, attempt, close_device, open_device

TILE = ttnn.TILE_LAYOUT
BF16 = ttnn.bfloat16


def sharded(layout, shape, x, y, region="L1"):
    """A shard of that shape on each core of an x by y grid."""
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x - 1, y - 1))})
    spec = ttnn.ShardSpec(grid, list(shape), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(layout, getattr(ttnn.BufferType, region), spec)


def empty(device, shape, config, dtype=BF16, layout=TILE):
    return ttnn.empty(list(shape), dtype, layout, device, config)


def main():
    device = open_device(l1_small_size=32768, trace_region_size=1 << 20)
    check = Checkpoints()
    check("opened", device)
    live = []

    for size in (32, 64, 512, 1024, 96):
        live.append(empty(device, (size, size), ttnn.DRAM_MEMORY_CONFIG))
        check(f"DRAM {size}", device)
    for size in (32, 64, 512, 160):
        live.append(empty(device, (size, size), ttnn.L1_MEMORY_CONFIG))
        check(f"L1 {size}", device)
    rows = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    small = attempt("L1_SMALL", lambda: empty(device, (1, 1, 128, 32), sharded(rows, (32, 32), 4, 1, "L1_SMALL")))
    check("L1_SMALL", device)
    row_major = attempt(
        "row major", lambda: empty(device, (7, 100), ttnn.DRAM_MEMORY_CONFIG, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    )
    check("row major with odd pages", device)
    # smaller than the blocks that an allocator gives away
    tiny = [
        attempt(f"{n} values", lambda: empty(device, (1, n), ttnn.L1_MEMORY_CONFIG, BF16, ttnn.ROW_MAJOR_LAYOUT))
        for n in (8, 16, 24, 40)
    ]
    check("row major with tiny pages", device)

    kinds = ttnn.TensorMemoryLayout
    shards = [
        attempt("height", lambda: empty(device, (1, 1, 512, 64), sharded(kinds.HEIGHT_SHARDED, (32, 64), 4, 4))),
        attempt("width", lambda: empty(device, (1, 1, 32, 512), sharded(kinds.WIDTH_SHARDED, (32, 64), 4, 2))),
        attempt("block", lambda: empty(device, (1, 1, 256, 256), sharded(kinds.BLOCK_SHARDED, (64, 64), 4, 4))),
        attempt("uneven", lambda: empty(device, (1, 1, 416, 64), sharded(kinds.HEIGHT_SHARDED, (64, 64), 7, 1))),
    ]
    check("sharded", device)

    del tiny[1]
    gc.collect()
    check("tiny pages dropped", device)
    ttnn.deallocate(live[2])
    check("deallocate", device)
    ttnn.deallocate(live[2])  # does nothing any more
    check("deallocate again", device)
    del live[1]
    gc.collect()
    check("dropped", device)

    view = attempt("reshape", lambda: ttnn.reshape(live[0], (1, 1, 32, 32)))
    check("view", device)
    del view
    gc.collect()
    check("view dropped", device)

    a = empty(device, (1, 1, 512, 512), ttnn.DRAM_MEMORY_CONFIG)
    b = empty(device, (1, 1, 512, 512), ttnn.L1_MEMORY_CONFIG)
    weight = empty(device, (1, 1, 64, 64), ttnn.DRAM_MEMORY_CONFIG)
    check("operands", device)
    results = []
    for name, op in (
        ("add", lambda: ttnn.add(a, a)),
        ("add in L1", lambda: ttnn.add(b, b)),
        ("relu", lambda: ttnn.relu(a)),
        ("matmul", lambda: ttnn.matmul(a, a)),
        ("softmax", lambda: ttnn.softmax(a)),
        ("to L1", lambda: ttnn.to_memory_config(a, ttnn.L1_MEMORY_CONFIG)),
        (
            "to sharded",
            lambda: ttnn.to_memory_config(a, sharded(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, (32, 512), 4, 4)),
        ),
        ("relu of sharded", lambda: ttnn.relu(shards[0])),
        # its circular buffers lie in the shards
        ("matmul of sharded", lambda: ttnn.matmul(shards[0], weight, memory_config=shards[0].memory_config())),
        ("add again", lambda: ttnn.add(a, a)),
    ):
        results.append(attempt(name, op))
        check(name, device)
    results.clear()
    gc.collect()
    check("results dropped", device)

    def capture():
        graph = ttnn._ttnn.graph
        graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
        try:
            return empty(device, (256, 256), ttnn.DRAM_MEMORY_CONFIG)
        finally:
            graph.end_graph_capture()

    hooked = attempt("graph capture", capture)
    check("graph capture", device)
    del hooked
    gc.collect()
    check("captured dropped", device)

    def too_large():
        return empty(device, (1, 1, 32768, 32768), ttnn.L1_MEMORY_CONFIG)

    attempt("out of memory", too_large)
    check("out of memory", device)

    attempt("program cache", lambda: device.clear_program_cache())
    check("program cache cleared", device)
    attempt("add", lambda: ttnn.add(a, a))
    gc.collect()
    check("compiled again", device)

    dice = random.Random(7)
    pool = []
    while check.count < 50:
        for _ in range(20):
            if pool and dice.random() < 0.45:
                ttnn.deallocate(pool.pop(dice.randrange(len(pool))))
            else:
                shape = (dice.randrange(1, 9) * 32, dice.randrange(1, 9) * 32)
                config = ttnn.L1_MEMORY_CONFIG if dice.random() < 0.5 else ttnn.DRAM_MEMORY_CONFIG
                pool.append(empty(device, shape, config))
        check("random", device)

    close_device(device)


if __name__ == "__main__":
    main()
