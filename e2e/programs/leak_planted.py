"""A model whose forward keeps one result of each call, for good: a leak.

Everything else is as in leak_clean.py. The line that leaks is marked. The first argument
says how often the model is called; with a second one, it drops the result at once.
"""

import sys

import ttnn
from device import close_device, open_device
from leak_clean import Model, play
from marks import mark


class Leaking(Model):
    def __init__(self, device, layers):
        super().__init__(device, layers)
        self.cache = []

    def forward(self, x):
        x = super().forward(x)
        mark("step")
        self.cache.append(ttnn.add(x, x))  # line: leak
        if len(sys.argv) > 2:
            self.cache.clear()
        return x


if __name__ == "__main__":
    device = open_device()
    play(Leaking(device, 4), device, int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    close_device(device)
