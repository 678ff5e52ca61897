"""Two peaks, each inside one operation.

In DRAM it is ttnn.tril, which allocates a mask and frees it before it returns, on top
of the buffers of two other lines. In L1 it is ttnn.softmax, whose program has the largest
circular buffers, on top of the buffers of two lines there. Less is live before and
after. The lines that allocate are marked with names; the figures of the library's own
allocator right before the peaks go to the checkpoints.
"""

import time

import ttnn
from device import Checkpoints, close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
SIZE = 1024


class Cache:
    def __init__(self, device, layers):
        self.layers = [
            ttnn.empty([1, 1, SIZE, SIZE], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)  # line: cache
            for _ in range(layers)
        ]


def causal(scores):
    return ttnn.tril(scores)  # line: tril


def weights(x):
    return ttnn.softmax(x, dim=-1, memory_config=ttnn.L1_MEMORY_CONFIG)  # line: softmax


def tokens(device):
    return ttnn.empty([1, 1, 256, 256], BF16, TILE, device, ttnn.L1_MEMORY_CONFIG)  # line: tokens


def positions(device):
    return ttnn.empty([1, 1, 512, 256], BF16, TILE, device, ttnn.L1_MEMORY_CONFIG)  # line: positions


def main():
    device = open_device()
    check = Checkpoints()
    cache = Cache(device, 3)
    scores = ttnn.empty([1, 1, SIZE, SIZE], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)  # line: scores
    check("before tril", device)
    masked = causal(scores)
    check("after tril", device)
    del masked, cache
    held = [tokens(device), positions(device)]
    time.sleep(0.05)
    check("before softmax", device)
    result = weights(held[0])
    check("after softmax", device)
    del held, result
    time.sleep(0.1)
    spare = [ttnn.empty([1, 1, SIZE, SIZE], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(3)]  # noqa: F841
    time.sleep(0.05)
    close_device(device)


main()
