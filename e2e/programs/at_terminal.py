"""Checks that its standard streams are a terminal whose foreground it has, repeats a line that is typed, and holds a buffer
until Ctrl-C."""

import os
import signal

import ttnn
from device import open_device

device = open_device()
held = ttnn.empty([512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
print("terminal", *(os.isatty(n) for n in range(3)), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
print("read", input(), flush=True)
print("holding", flush=True)
signal.pause()
