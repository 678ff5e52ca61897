"""A model that keeps a tensor of each step for good: leak_held.py STEPS.

It makes STEPS steps and prints "ready". For each number on its standard input it makes that many
more, and prints "done"; for "fail", it asks for all of L1.
"""

import sys

import ttnn
from device import open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16


def tensor(device, *shape, where=ttnn.DRAM_MEMORY_CONFIG):
    return ttnn.empty(list(shape), BF16, TILE, device, where)


class Model:
    def __init__(self, device):
        self.layers = [tensor(device, 64, 64) for _ in range(4)]
        self.state = tensor(device, 32, 64, where=ttnn.L1_MEMORY_CONFIG)
        self.debug = {"x": []}

    def step(self, x):
        for w in self.layers:
            x = ttnn.relu(ttnn.matmul(x, w))
        self.state = ttnn.add(self.state, x, memory_config=ttnn.L1_MEMORY_CONFIG)
        self.debug["x"].append(ttnn.multiply(x, x))  # line: leak


def steps(n):
    for _ in range(n):
        model.step(tensor(device, 32, 64))


device = open_device()
model = Model(device)
steps(int(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    if line == "fail\n":
        try:
            tensor(device, 32, 32 * 664 * 64, where=ttnn.L1_MEMORY_CONFIG)  # tiles in each of 64 banks
        except RuntimeError:
            pass
    else:
        steps(int(line))
    print("done", flush=True)
