"""A model whose activations grow with the batch: growing.py BATCH prints WORKED, or dies of a lack of L1."""

import sys

import ttnn
from device import close_device, open_device

batch = int(sys.argv[1])
device = open_device()


def tensor(rows, columns, memory=ttnn.L1_MEMORY_CONFIG):
    return ttnn.empty([rows, columns], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


weights = [tensor(2048, 1024) for _ in range(4)]  # WEIGHTS
cache = tensor(512 * batch, 96, ttnn.DRAM_MEMORY_CONFIG)  # CACHE
for _ in range(3):
    hidden = tensor(160 * batch, 512)  # HIDDEN
    wide = tensor(160 * batch, 1024)  # WIDE
    ttnn.deallocate(hidden)
    ttnn.deallocate(wide)
print("WORKED", flush=True)
close_device(device)
