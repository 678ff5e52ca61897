"""Allocates and frees one buffer many times: loop.py PAIRS [ROUNDS [DEPTH [drop]]].

Waits for a line on standard input before each round, if it is given rounds, and
prints the CPU time of each, in ns, which excludes other activity of the machine.
The buffers are allocated DEPTH calls further down. With "drop" no call frees them, but the end of
their tensor.
"""

import sys
import time

import ttnn
from device import close_device, open_device
from rounds import play

pairs = int(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 0
depth = int(sys.argv[3]) if len(sys.argv) > 3 else 0
device = open_device()
empty, deallocate = ttnn.empty, ttnn.deallocate
drop = sys.argv[4:] == ["drop"]
arguments = ([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def turn(n):
    start = time.thread_time_ns()
    if drop:
        for _ in range(n):
            empty(*arguments)
    else:
        for _ in range(n):
            deallocate(empty(*arguments))
    return time.thread_time_ns() - start


def descend(levels, n):
    return descend(levels - 1, n) if levels else turn(n)


play(lambda n: descend(depth, n), pairs, rounds)
close_device(device)
print("done", flush=True)
