"""Allocates, computes and frees; prints what the library's allocator counts: work.py ERRORS.

Before each round it waits for a line of its standard input, which may have the number of
allocations and frees; at "exec" it executes itself, and at "fork" a child reads the lines up to "parent".
It ends with status 3 when its input does. What it writes to standard error goes to the file ERRORS, apart
from ttmem's.
"""

import os
import random
import resource
import signal
import sys

os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "programs"))

import ttnn  # noqa: E402: its errors go to the file as well
from device import close_device, memory, open_device  # noqa: E402


def surroundings():
    """What a tracer that starts this program must not change."""
    descriptors = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    return [resource.getrlimit(n) for n in range(16)], descriptors, os.nice(0)


def turn(device, dice, live):
    """Allocates or frees at random."""
    if live and dice.random() < len(live) / 60:
        ttnn.deallocate(live.pop(dice.randrange(len(live))))
        return 0
    config = ttnn.L1_MEMORY_CONFIG if dice.random() < 0.5 else ttnn.DRAM_MEMORY_CONFIG
    live.append(ttnn.empty([dice.randrange(1, 9) * 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, config))
    return live[-1].buffer_address()


def in_use(device):
    """What the allocator has given away in each bank of DRAM and L1."""
    views = memory(device)
    return [views[region]["allocated_per_bank"] for region in ("DRAM", "L1")]


def fork(device, inherited):
    """A child frees some of what it inherits, which is its parent's, and plays rounds of its own. It stays."""
    done, over = os.pipe()
    if os.fork():
        os.read(done, 1)
        print("forked", flush=True)
        return
    ttnn.deallocate(inherited.pop())
    before, dice, live = in_use(device), random.Random(8), []
    print("child", os.getpid(), flush=True)
    for rounds, line in enumerate(iter(sys.stdin.readline, "parent\n"), 1):
        for _ in range(int(line)):
            turn(device, dice, live)
        print("own", rounds, *(now - then for now, then in zip(in_use(device), before)), flush=True)
    os.write(over, b".")
    while True:
        signal.pause()


def play(device, dice, live, turns):
    """Allocates and frees, runs a program, and returns figures of the allocator."""
    addresses = 0
    for _ in range(turns):
        address = turn(device, dice, live)
        addresses = (addresses * 31 + address) % 2**32 if address else addresses
    ttnn.deallocate(ttnn.add(live[0], live[0]))
    try:
        ttnn.empty([32768, 32768], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    except RuntimeError:
        addresses += 1
    return [addresses, *in_use(device)]


def main():
    print("started", *surroundings(), flush=True)
    device = open_device()
    dice, live, rounds = random.Random(7), [], 0
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        if line == "exec\n":
            os.execv(sys.executable, [sys.executable, *sys.argv])
        if line == "fork\n":
            fork(device, live)
            continue
        rounds += 1
        print("round", rounds, *play(device, dice, live, int(line.strip() or 150)), flush=True)
    live.clear()
    close_device(device)
    print("closed", flush=True)
    sys.exit(3)


main()
