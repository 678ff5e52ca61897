"""A decoder that generates tokens with a cache of keys and values, most of the memory of the run."""

import time

import ttnn
from device import close_device, idle, open_device

TILE, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG


class Cache:
    def __init__(self, device, layers):
        shape = [1, 8, 1024, 64]
        self.k = [ttnn.empty(shape, BF16, TILE, device, DRAM) for _ in range(layers)]  # line: keys
        self.v = [ttnn.empty(shape, BF16, TILE, device, DRAM) for _ in range(layers)]


def generate(device, cache, tokens):
    head = ttnn.empty([64, 512], BF16, TILE, device, DRAM)
    for i in range(tokens):
        query = ttnn.empty([1, 8, 32, 64], BF16, TILE, device, DRAM)
        scores = ttnn.matmul(query, ttnn.transpose(cache.k[i % len(cache.k)], -2, -1))
        ttnn.matmul(ttnn.matmul(ttnn.softmax(scores, dim=-1), cache.v[i % len(cache.v)]), head)
        time.sleep(0.05)


device = open_device()
cache = Cache(device, 8)
generate(device, cache, 16)
idle()
close_device(device)
