"""Keeps a few results: few.py.

The steps of each call of run are on a device of their own, so that they are judged alone. Then a view
is deallocated, which frees the buffer of another tensor. Then it keeps a result each third of a second
until its standard input ends.
"""

import sys
import threading
import time

import ttnn
from device import close_device, open_device


def step(x, results):
    y = x
    for _ in range(8):
        y = ttnn.relu(y)
    return [ttnn.log(y) for _ in range(results)]


def run(steps, each=1, first=0):
    """Keeps so many results of each step, and so many more of the first one."""
    device = open_device()
    x = ttnn.empty([64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    kept = []
    for i in range(steps):
        kept += step(x, each + (first if i == 0 else 0))
    close_device(device)


def cleanup(tensor):
    ttnn.deallocate(tensor)  # line: freed


run(3)  # line: 3
run(5)  # line: 5
run(12)  # line: 12
run(15)  # line: 15
run(16)  # line: 16
run(17)  # line: 17
run(7, each=2)  # line: pairs
run(12, each=0, first=12)  # line: once

device = open_device()
x = ttnn.empty([64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
weight = ttnn.empty([1, 1, 64, 128], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)  # line: weight
view = ttnn.reshape(weight, (1, 64, 128))
assert view.buffer_address() == weight.buffer_address()
print(hex(weight.buffer_address()), flush=True)
cleanup(view)
dropped = ttnn.relu(x)
dropped = None  # line: dropped
if "watch" in sys.argv:
    print("watch", flush=True)
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    slow = []
    while not done.wait(0.3):
        slow += step(x, 1)  # line: slow
close_device(device)
