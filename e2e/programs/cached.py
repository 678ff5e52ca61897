"""Runs a cached program many times, without an allocation: cached.py RUNS [ROUNDS].

Waits for a line on standard input before each round, if it is given rounds, and prints the CPU time
of each, in ns, which excludes other activity of the machine.
"""

import sys
import time

import ttnn
from device import close_device, open_device
from rounds import play

runs = int(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 0
device = open_device()
a = ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
out = ttnn.add(a, a)


def turn(n):
    start = time.thread_time_ns()
    for _ in range(n):
        ttnn.add(a, a, output_tensor=out)
    return time.thread_time_ns() - start


play(turn, runs, rounds)
close_device(device)
