"""Opens a device, runs an op on it and closes it, four times."""

import ttnn
from device import close_device, open_device

for size in (256, 512, 256, 1024):
    device = open_device()
    a = ttnn.empty([1, 1, size, size], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    b = ttnn.add(a, a)
    del a, b
    close_device(device)
