"""Calls operations with a new shape each time, which leaks nothing.

Each shape is a program of its own, which stays in the program cache with the binaries of
its kernels and with tensors of its own.
"""

import ttnn
from device import close_device, open_device

device = open_device(l1_small_size=65536)
ROWS, BF16 = ttnn.ROW_MAJOR_LAYOUT, ttnn.bfloat16


def pool(size):
    x = ttnn.empty([1, 1, size * size, 32], BF16, ROWS, device, ttnn.L1_MEMORY_CONFIG)
    return ttnn.max_pool2d(  # line: programs
        input_tensor=x, batch_size=1, input_h=size, input_w=size, channels=32,
        kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1],
    )  # fmt: skip


for size in range(8, 48, 2):
    pool(size)
    ttnn.softmax(ttnn.empty([size * 32, 64], BF16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG), dim=-1)
close_device(device)
