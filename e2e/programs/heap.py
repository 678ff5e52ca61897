"""A program with a large heap, in which tensors lie: heap.py PAIRS ROUNDS OBJECTS TENSORS.

It waits for a line on standard input before each round, in which it allocates and frees one
buffer many times, and prints the time of each in ns, as loop.py does.
"""

import sys
import time

import ttnn
from device import open_device
from rounds import play

pairs, rounds, objects, tensors = (int(n) for n in sys.argv[1:])
device = open_device()
arguments = ([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


class Node:
    def __init__(self, n):  # four objects that refer to others
        self.children = [n, str(n)]
        self.table = {"pair": (n, str(n)), "name": str(n)}


data = [Node(n) for n in range(objects // 4)]
for n in range(tensors):
    data[n * len(data) // tensors].table["tensor"] = ttnn.empty(*arguments)


def turn(n):
    start = time.perf_counter_ns()
    for _ in range(n):
        ttnn.deallocate(ttnn.empty(*arguments))
    return time.perf_counter_ns() - start


play(turn, pairs, rounds)
