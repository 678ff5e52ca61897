"""A story for log, diff and map: an address that is reused, a leak, fragmentation.

It runs STEPS steps, each of which leaks a buffer, and one more: log_story.py STEPS.
The lines that a test checks are marked with names.
"""

import os
import subprocess
import sys

import ttnn
from device import Checkpoints, attempt, close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16


def dram(device, rows, columns):
    return ttnn.empty([rows, columns], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)


class Story(Checkpoints):
    """Checkpoints that are marks too, where TTMEM_MARK has the command that sets one."""

    def __call__(self, name, *devices):
        super().__call__(name, *devices)
        command = os.environ.get("TTMEM_MARK")
        if command:
            subprocess.run([*command.split(), name], check=True, capture_output=True)


class Cache:
    def __init__(self):
        self.kept = []

    def step(self, device):
        x = dram(device, 64, 64)  # line: temporary
        y = ttnn.relu(x)  # line: relu
        self.kept.append(ttnn.empty([32, 256], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG))  # line: leak
        ttnn.deallocate(x)
        ttnn.deallocate(y)


def views(device):
    """Makes views, which have no memory of their own, and frees one buffer twice."""
    x = dram(device, 64, 64)  # line: viewed
    attempt("reshape", lambda: ttnn.reshape(x, [1, 1, 64, 64]))
    ttnn.deallocate(x)
    attempt("again", lambda: ttnn.deallocate(x))


def main():
    device = open_device()
    check = Story()
    weights = [dram(device, 256, 256) for _ in range(4)]  # line: weights
    check("loaded", device)
    ttnn.deallocate(dram(device, 512, 512))  # line: swapped
    cache = Cache()
    cache.step(device)
    check("first", device)
    for _ in range(int(sys.argv[1])):
        cache.step(device)
    check("last", device)
    views(device)
    small = dram(device, 32, 32)  # line: before
    large = dram(device, 1024, 1024)  # line: after
    held = dram(device, 32, 32)  # line: held
    ttnn.deallocate(small)
    ttnn.deallocate(large)
    l1 = ttnn.empty([256, 256], BF16, TILE, device, ttnn.L1_MEMORY_CONFIG)  # noqa: F841 # line: l1
    check("holed", device)
    del weights, held
    close_device(device)


main()
