"""Runs out of memory in every way, each planted in a function of its own.

With an argument it ends with the last one: "raise" does not catch the exception,
"kill" sends itself SIGKILL right after it.
"""

import os
import signal
import sys

import ttnn
from device import Checkpoints, attempt, memory, open_device

device = open_device()
check = Checkpoints()


def l1(edge):
    return ttnn.empty([edge, edge], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)


def dram(edge):
    return ttnn.empty([1, 1, edge, 65536], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def small(cores):
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores - 1, 0))})
    spec = ttnn.ShardSpec(grid, [512, 32], ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1_SMALL, spec)
    return ttnn.empty([1, 1, 512 * cores, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, config)


def weights():
    return [l1(1024) for _ in range(10)]


def cache():
    return [l1(256) for _ in range(3)]


def scratch():
    return [l1(1024) for _ in range(12)]


def fill():
    rest = []
    while memory(device)["L1"]["largest_free"] >= 10_000:
        rest.append(l1(512))
    return rest


check("opened", device)
attempt("too large", lambda: l1(32768))

held = weights()
islands = []
holes = []
for _ in range(3):
    holes += scratch()[:8]
    islands += cache()
for tensor in holes:
    ttnn.deallocate(tensor)
check("holes", device)
attempt("fragmented", lambda: l1(4096))
attempt("too little", lambda: l1(6400))
attempt("too little of L1_SMALL", lambda: [small(4) for _ in range(3)])

parts = [dram(32768) for _ in range(2)]
attempt("too little of DRAM", lambda: dram(81920))
check("DRAM", device)

operand = ttnn.empty([1, 1, 1024, 1024], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
filled = fill()
check("filled", device)
attempt("clash", lambda: ttnn.softmax(operand))

how = sys.argv[1] if len(sys.argv) > 1 else ""
if how == "raise":
    l1(4096)
elif how == "kill":
    attempt("last", lambda: l1(4096))
    os.kill(os.getpid(), signal.SIGKILL)
print("done")
