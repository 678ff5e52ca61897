"""Allocates, computes and frees; prints what the library's allocator counts: work.py ERRORS.

Before each round it waits for a line of its standard input, which may have the number of
allocations and frees; at "exec" it executes itself. It ends with status 3 when that ends. What it writes to standard error goes to the file ERRORS, apart from ttmem's.
"""

import os
import random
import resource
import sys

os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "programs"))

import ttnn  # noqa: E402: its errors go to the file as well
from device import close_device, memory, open_device  # noqa: E402


def surroundings():
    """What a tracer that starts this program must not change."""
    descriptors = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    return [resource.getrlimit(n) for n in range(16)], descriptors, os.nice(0)


def play(device, dice, live, turns):
    """Allocates and frees at random, runs a program, and returns figures of the allocator."""
    addresses = 0
    for _ in range(turns):
        if live and dice.random() < len(live) / 60:
            ttnn.deallocate(live.pop(dice.randrange(len(live))))
        else:
            config = ttnn.L1_MEMORY_CONFIG if dice.random() < 0.5 else ttnn.DRAM_MEMORY_CONFIG
            live.append(ttnn.empty([dice.randrange(1, 9) * 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, config))
            addresses = (addresses * 31 + live[-1].buffer_address()) % 2**32
    ttnn.deallocate(ttnn.add(live[0], live[0]))
    try:
        ttnn.empty([32768, 32768], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    except RuntimeError:
        addresses += 1
    views = memory(device)
    return [addresses] + [views[region]["allocated_per_bank"] for region in ("DRAM", "L1")]


def main():
    print("started", *surroundings(), flush=True)
    device = open_device()
    dice, live, rounds = random.Random(7), [], 0
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        if line == "exec\n":
            os.execv(sys.executable, [sys.executable, *sys.argv])
        rounds += 1
        print("round", rounds, *play(device, dice, live, int(line.strip() or 150)), flush=True)
    live.clear()
    close_device(device)
    print("closed", flush=True)
    sys.exit(3)


main()
