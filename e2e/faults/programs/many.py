"""Holds many small buffers until it is killed: many.py COUNT."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "programs"))

import ttnn  # noqa: E402
from device import open_device  # noqa: E402

device = open_device()
empty, row = ttnn.empty, ttnn.ROW_MAJOR_LAYOUT
live = [empty([1, 16], ttnn.bfloat16, row, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(int(sys.argv[1]))]
print("holding", flush=True)
sys.stdin.read()
