"""Fills the program cache with another program each time, each with tensors of its own.

They live as long as the program is cached: no leak.
"""

import ttnn
from device import close_device, open_device

device = open_device(l1_small_size=65536)


def pool(size):
    x = ttnn.empty([1, 1, size * size, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    return ttnn.max_pool2d(
        input_tensor=x, batch_size=1, input_h=size, input_w=size, channels=32,
        kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1],
    )  # fmt: skip


for size in range(8, 40, 2):
    pool(size)
close_device(device)
