"""Allocates and frees a few buffers as soon as it can, and ends."""

import ttnn
from device import close_device, open_device

device = open_device()
tensors = [ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(5)]
ttnn.deallocate(tensors[3])
close_device(device)
