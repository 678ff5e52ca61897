"""Keeps buffers of all kinds while it allocates and frees others: late.py OPS.

After each OPS operations it stops at a checkpoint. It ends when its standard input
does. What the allocator counts after each operation goes to the file "log" as four
unsigned 64-bit numbers: the times before and after, and the bytes per bank of DRAM
and L1.
"""

import array
import random
import select
import sys
import time

import ttnn
from device import Checkpoints, attempt, close_device, open_device
from mix import BF16, TILE, empty, sharded

ops = int(sys.argv[1])


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def hold(device):
    """Buffers of all regions and layouts, and what is no buffer of its own."""
    kinds = ttnn.TensorMemoryLayout
    held = [empty(device, (n, n), ttnn.DRAM_MEMORY_CONFIG) for n in (32, 512, 96, 1024)]
    held += [empty(device, (n, n), ttnn.L1_MEMORY_CONFIG) for n in (32, 160, 512)]
    held += [
        attempt("L1_SMALL", lambda: empty(device, (1, 1, 128, 32), sharded(kinds.HEIGHT_SHARDED, (32, 32), 4, 1, "L1_SMALL"))),
        attempt("height", lambda: empty(device, (1, 1, 512, 64), sharded(kinds.HEIGHT_SHARDED, (32, 64), 4, 4))),
        attempt("width", lambda: empty(device, (1, 1, 32, 512), sharded(kinds.WIDTH_SHARDED, (32, 64), 4, 2))),
        attempt("block", lambda: empty(device, (1, 1, 256, 256), sharded(kinds.BLOCK_SHARDED, (64, 64), 4, 4))),
        attempt("uneven", lambda: empty(device, (1, 1, 416, 64), sharded(kinds.HEIGHT_SHARDED, (64, 64), 7, 1))),
        attempt("row major", lambda: ttnn.empty([7, 100], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)),
    ]
    held += [attempt("view", lambda: ttnn.reshape(held[0], (1, 1, 32, 32)))]
    ttnn.deallocate(held[2])
    operand = empty(device, (1, 1, 64, 64), ttnn.DRAM_MEMORY_CONFIG)
    held += [operand, attempt("add", lambda: ttnn.add(operand, operand))]
    return held


def main():
    # what is left of a device that was closed is no device
    close_device(open_device())
    device = open_device(l1_small_size=32768, trace_region_size=1 << 20)
    check = Checkpoints()
    held = hold(device)  # noqa: F841: to be found
    dice = random.Random(11)
    pool = []
    view = ttnn._ttnn.device.GetMemoryView
    log = open("log", "wb")
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        entries = array.array("Q")
        for _ in range(ops):
            begun = now()
            if pool and dice.random() < len(pool) / 40:
                ttnn.deallocate(pool.pop(dice.randrange(len(pool))))
            else:
                shape = [dice.randrange(1, 9) * 32, 32]
                config = ttnn.L1_MEMORY_CONFIG if dice.random() < 0.5 else ttnn.DRAM_MEMORY_CONFIG
                pool.append(ttnn.empty(shape, BF16, TILE, device, config))
            done = now()
            entries.extend((begun, done))
            for region in (ttnn.BufferType.DRAM, ttnn.BufferType.L1):
                entries.append(int(view(device, region).total_bytes_allocated_per_bank))
        log.write(entries.tobytes())
        log.flush()
        check("busy", device)
    close_device(device)


main()
