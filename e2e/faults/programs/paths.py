"""Allocates and frees a buffer in each of many call stacks: paths.py COUNT."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "programs"))

import ttnn  # noqa: E402
from device import close_device, open_device  # noqa: E402

device = open_device()


def descend(path, depth):
    """The bits of path are the call stack."""
    if depth == 0:
        ttnn.deallocate(ttnn.empty([1, 16], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG))
    elif path & 1:
        descend(path >> 1, depth - 1)
    else:
        descend(path >> 1, depth - 1)


for n in range(int(sys.argv[1])):
    descend(n, 20)
close_device(device)
