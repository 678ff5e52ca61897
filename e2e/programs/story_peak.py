"""Has its peak inside one operation, whose temporaries no line of the program sees."""

import ttnn
from device import Checkpoints, close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
device = open_device()
check = Checkpoints()


def load():
    return [ttnn.empty([512, 512], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(4)]  # line: weights


def activations(x):
    for _ in range(20):
        x = ttnn.relu(ttnn.add(x, x))
    return x


def mask(x):
    return ttnn.tril(x)  # line: peak


weights = load()
x = ttnn.empty([1, 1, 1024, 1024], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)  # line: input
check("before", device)
x = mask(x)
check("after", device)
small = activations(weights[0])
close_device(device)
