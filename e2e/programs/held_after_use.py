"""Holds a tensor through the peak of DRAM that only the first operation uses: held_after_use.py [freed] prints what is
allocated of each bank at the peak. With "freed" it frees the tensor after that operation, as `ttmem advise` says."""

import sys

import ttnn
from device import close_device, memory, open_device

device = open_device()


def tensor():
    return ttnn.empty([2048, 2048], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def forward():
    residual = tensor()  # HELD
    x = ttnn.add(residual, residual)  # LAST
    if "freed" in sys.argv:
        ttnn.deallocate(residual)
    for _ in range(4):
        x = ttnn.relu(x)
    y = [ttnn.add(x, x) for _ in range(4)]
    dram = memory(device)["DRAM"]
    print("PEAK", dram["allocated_per_bank"] * dram["banks"], flush=True)
    return y[0]


forward()
close_device(device)
