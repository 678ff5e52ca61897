"""Holds tensors, and does what each line of standard input says.

grow adds a tensor to a list, fail tries to allocate too much, flood does that for a second, step is a
mark, and drop empties the list. It answers each line when that is done.
"""

import sys
import time

import ttnn
from device import open_device
from marks import mark

device = open_device()


def tensor(edge):
    return ttnn.empty([edge, edge], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


class Model:
    def __init__(self):
        self.layers = [tensor(64), tensor(64)]


def fail():
    try:
        tensor(1 << 20)
    except RuntimeError:
        pass


def do(word):
    if word == "grow":
        cache.append(tensor(32))
    elif word == "fail":
        fail()
    elif word == "flood":
        end = time.monotonic() + 1
        while time.monotonic() < end:
            fail()
    elif word == "step":
        mark("step")
    elif word == "drop":
        cache.clear()
    print(word, flush=True)


model = Model()
cache = []
print("ready", flush=True)
for line in sys.stdin:
    do(line.strip())
