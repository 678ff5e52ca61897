"""Replaces its tensors with each iteration, keeps the last few in turns, and leaks nothing."""

import ttnn
from device import close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16


def tensor(device):
    return ttnn.empty([64, 64], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)


class State:
    def __init__(self, device):
        self.device = device
        self.momentum = tensor(device)
        self.last = [None] * 5
        self.best = None

    def step(self, i):
        gradient = ttnn.multiply(tensor(self.device), self.momentum)
        self.momentum = ttnn.add(self.momentum, gradient)
        self.last[i % len(self.last)] = ttnn.relu(gradient)
        if i % 7 == 0:
            self.best = ttnn.add(gradient, gradient)


device = open_device()
state = State(device)
for i in range(60):
    state.step(i)
close_device(device)
