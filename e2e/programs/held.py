"""Allocates buffers of every kind, and writes the figures of the library's allocator.

held.py [COUNT [BUSY]] opens a device, closes it and opens it again, allocates all
kinds of buffers and COUNT small ones, writes a checkpoint and prints "holding". With
BUSY a thread allocates and frees meanwhile. It ends when its standard input does.
"""

import gc
import sys
import threading

import ttnn
from device import Checkpoints, attempt, close_device, open_device

TILE = ttnn.TILE_LAYOUT
BF16 = ttnn.bfloat16
KINDS = ttnn.TensorMemoryLayout


def sharded(layout, shape, x, y, region="L1"):
    """A shard of that shape on each core of an x by y grid."""
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x - 1, y - 1))})
    spec = ttnn.ShardSpec(grid, list(shape), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(layout, getattr(ttnn.BufferType, region), spec)


def nd_sharded():
    """Shards of any rank, dealt out to more cores than there are shards."""
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))})
    return ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec(ttnn.Shape([1, 64, 64]), grid))


def empty(device, shape, config, dtype=BF16, layout=TILE):
    return ttnn.empty(list(shape), dtype, layout, device, config)


def hold(device):
    """One or several of each kind; what a release or a board refuses is left out."""
    live = [empty(device, (n, n), ttnn.DRAM_MEMORY_CONFIG) for n in (32, 64, 512, 1024, 96)]
    live += [empty(device, (n, n), ttnn.L1_MEMORY_CONFIG) for n in (32, 64, 512, 160)]
    rows = KINDS.HEIGHT_SHARDED
    for what, make in (
        ("L1_SMALL", lambda: empty(device, (1, 1, 128, 32), sharded(rows, (32, 32), 4, 1, "L1_SMALL"))),
        ("odd pages", lambda: empty(device, (7, 100), ttnn.DRAM_MEMORY_CONFIG, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)),
        ("height", lambda: empty(device, (1, 1, 512, 64), sharded(rows, (32, 64), 4, 4))),
        ("width", lambda: empty(device, (1, 1, 32, 512), sharded(KINDS.WIDTH_SHARDED, (32, 64), 4, 2))),
        ("block", lambda: empty(device, (1, 1, 256, 256), sharded(KINDS.BLOCK_SHARDED, (64, 64), 4, 4))),
        # shards that are not full, and cores without a shard
        ("uneven block", lambda: empty(device, (1, 1, 160, 160), sharded(KINDS.BLOCK_SHARDED, (96, 96), 2, 2))),
        ("uneven height", lambda: empty(device, (1, 1, 416, 64), sharded(rows, (64, 64), 7, 1))),
        ("spare cores", lambda: empty(device, (1, 1, 96, 64), sharded(rows, (32, 64), 4, 4))),
        ("sharded DRAM", lambda: empty(device, (1, 1, 32, 384), sharded(KINDS.WIDTH_SHARDED, (32, 96), 4, 1, "DRAM"))),
        ("any rank", lambda: empty(device, (2, 160, 128), nd_sharded())),
    ):
        live.append(attempt(what, make))
    ttnn.deallocate(live[2])  # held on to, without memory
    del live[1]
    live.append(attempt("reshape", lambda: ttnn.reshape(live[0], (1, 1, 32, 32))))  # shares memory
    gc.collect()
    return live


def churn(device, stop):
    while not stop.is_set():
        for _ in range(50):
            a = empty(device, (32, 32), ttnn.DRAM_MEMORY_CONFIG)
            ttnn.deallocate(empty(device, (64, 64), ttnn.DRAM_MEMORY_CONFIG))
            ttnn.deallocate(a)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    busy = len(sys.argv) > 2
    first = open_device()
    stale = hold(first)
    close_device(first)
    device = open_device(l1_small_size=32768, trace_region_size=1 << 20)
    live = hold(device)
    live += [empty(device, (32, 32), ttnn.DRAM_MEMORY_CONFIG) for _ in range(count)]
    Checkpoints()("holding", device)
    stop = threading.Event()
    thread = threading.Thread(target=churn, args=(device, stop), daemon=True)
    if busy:
        thread.start()
    print("holding", len(live), len(stale), flush=True)
    sys.stdin.read()
    stop.set()
    if busy:
        thread.join()
    del live, stale
    close_device(device)


main()
