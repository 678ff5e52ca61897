"""Quiet processes: quiet.py COUNT makes so many, which have a device each.

At a line on standard input each allocates 20 buffers and frees half of them. They end with
standard input.
"""

import os
import sys

import ttnn
from device import open_device

go, done = os.pipe(), os.pipe()
children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child:
        children.append(child)
        continue
    os.close(go[1])
    device = open_device()
    os.write(done[1], b"o")
    os.read(go[0], 1)
    held = [
        ttnn.empty([64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(20)
    ]
    del held[::2]
    os.write(done[1], b"h")
    sys.stdin.read()
    os._exit(0)


def await_all():
    for _ in children:
        os.read(done[0], 1)


await_all()
print("opened", *children, flush=True)
sys.stdin.readline()
os.close(go[1])
await_all()
print("holding", flush=True)
for child in children:
    os.waitpid(child, 0)
