"""Programs that use much memory and leak nothing; the argument selects one.

model     weights loaded in a loop of layers, programs cached at the first call, a result
          that is replaced, a state that is replaced, two buffers in turns, and a ring
loading   weights that are loaded, and nothing else
once      one call of the model
late      weights that each layer loads at its first call
again     devices that are opened and closed, each with what it holds
dropped   results that are kept for a while and dropped together
"""

import gc
import sys

import ttnn
from device import close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16


def tensor(device, size):
    return ttnn.empty([size, size], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)


class Layer:
    def __init__(self, device, late=False):
        self.device = device
        self.w = None if late else tensor(device, 64)

    def forward(self, x):
        if self.w is None:
            self.w = tensor(self.device, 64)
        return ttnn.relu(ttnn.matmul(x, self.w))


class Model:
    def __init__(self, device, layers, late=False):
        self.layers = [Layer(device, late) for _ in range(layers)]
        self.state = tensor(device, 64)
        self.ring = [None] * 6
        self.calls = 0

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        self.state = ttnn.add(self.state, x)
        self.ring[self.calls % len(self.ring)] = ttnn.multiply(x, x)
        self.calls += 1
        return x


def play(model, device, calls):
    buffers = [None, None]
    for i in range(calls):
        buffers[i % 2] = tensor(device, 64)
        result = model.forward(buffers[i % 2])
    return result


def loading(device):
    return [Layer(device) for _ in range(32)]


def once(device):
    return play(Model(device, 12), device, 1)


def late(device):
    return play(Model(device, 12, late=True), device, 4)


def again(device):
    for _ in range(8):
        play(Model(device, 6), device, 3)
        close_device(device)
        device = open_device()


def dropped(device):
    model, kept = Model(device, 2), []
    for i in range(60):
        kept.append(model.forward(tensor(device, 64)))
        if i % 10 == 9:
            kept.clear()
            gc.collect()


def main():
    device = open_device()
    what = sys.argv[1] if len(sys.argv) > 1 else "model"
    if what == "model":
        held = Model(device, 4)
        play(held, device, 20)
    else:
        held = {"loading": loading, "once": once, "late": late, "again": again, "dropped": dropped}[what](device)
    if what != "again":
        close_device(device)
    return held


if __name__ == "__main__":
    main()
