"""Holds buffers until its standard input ends: hold.py COUNT SIZE.

SIZE is the edge of square bfloat16 tensors in DRAM.
"""

import sys

import ttnn
from device import close_device, open_device

count, size = int(sys.argv[1]), int(sys.argv[2])
device = open_device()
if len(sys.argv) > 3:  # be attached to first
    print("opened", flush=True)
    sys.stdin.readline()
tensors = [
    ttnn.empty([size, size], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(count)  # line: held
]
print("holding", flush=True)
sys.stdin.read()
close_device(device)
