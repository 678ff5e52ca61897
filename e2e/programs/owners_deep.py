"""Holds a tensor below more frames than a search reads, and one in a global variable."""

import json
import sys

import ttnn
from device import open_device

device = open_device()


def tensor():
    return ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def deep(n):
    if n > 0:
        deep(n - 1)
    else:
        print(json.dumps({"known": known.buffer_address()}), flush=True)
        sys.stdin.readline()


def main():
    hidden = tensor()
    deep(70_000)
    del hidden


known = tensor()
sys.setrecursionlimit(100_000)
main()
