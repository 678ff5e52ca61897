"""Runs a program with large dataflow buffers while L1 is empty, then fills L1 with tensors beside the
cached program, and runs a small one: N tensors of 16 KiB in each bank."""

import sys

import ttnn

TILE, BF16, DRAM, L1 = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG

device = ttnn.open_device(device_id=0)
ttnn.layer_norm(ttnn.empty([1, 1, 32, 4096], BF16, TILE, device, DRAM))
keep = [ttnn.empty([1, 1, 64 * 32, 256], BF16, TILE, device, L1) for _ in range(int(sys.argv[1]))]
if len(sys.argv) > 2:  # a program that the library refuses beside so many, when compiled and from the cache
    for _ in range(2):
        try:
            ttnn.softmax(ttnn.empty([1, 1, 1024, 1024], BF16, TILE, device, DRAM), dim=-1)
        except RuntimeError:
            print("refused")
ttnn.relu(ttnn.empty([1, 1, 32, 32], BF16, TILE, device, DRAM))
ttnn.close_device(device)
