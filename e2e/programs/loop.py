"""Allocates and frees one buffer many times: loop.py PAIRS [ROUNDS].

Waits for a line on standard input before each round, if it is given rounds, and
prints what each took, in ns.
"""

import sys
import time

import ttnn
from device import close_device, open_device

pairs = int(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 0
device = open_device()
empty, deallocate = ttnn.empty, ttnn.deallocate
arguments = ([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def turn(n):
    start = time.perf_counter_ns()
    for _ in range(n):
        deallocate(empty(*arguments))
    return time.perf_counter_ns() - start


print("ready", flush=True)
if rounds:
    for _ in range(rounds):
        if not sys.stdin.readline():
            break
        print(turn(pairs), flush=True)
else:
    print(turn(pairs), flush=True)
close_device(device)
print("done", flush=True)
