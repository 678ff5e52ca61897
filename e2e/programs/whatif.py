"""Fragments L1 until a tensor does not fit: whatif.py [CHANGE] prints where the tensors are.

With a change the program does what `ttmem oom` replays: the weights are in DRAM (moved) or freed at once (freed), the
islands come before all others (first), or L1_SMALL is smaller (small).
"""

import sys

import ttnn
from device import attempt, close_device, open_device

change = sys.argv[1] if len(sys.argv) > 1 else ""
device = open_device(l1_small_size=0 if change == "small" else 32768)


def tensor(tiles, memory=ttnn.L1_MEMORY_CONFIG):
    return ttnn.empty([tiles * 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


def island():
    return tensor(64 * 16)  # ISLAND


def weight():
    made = tensor(64 * 20, ttnn.DRAM_MEMORY_CONFIG if change == "moved" else ttnn.L1_MEMORY_CONFIG)
    if change == "freed":
        ttnn.deallocate(made)
    return made


islands = [island() for _ in range(8)] if change == "first" else []
weights = [weight() for _ in range(10)]  # WEIGHTS
for i in range(8):
    scratch = tensor(64 * (8 + i))
    if change != "first":
        islands.append(island())
    ttnn.deallocate(scratch)
last = attempt("the large tensor", lambda: tensor(64 * 250))
print("AT", last.buffer_address() if last else 0, flush=True)
close_device(device)
