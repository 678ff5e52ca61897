"""Fails with free memory: L1 in pieces, and L1 that circular buffers need.

Between scratch tensors, which it frees, it keeps small ones, which lie in the way. Then
it frees these, fills L1, and runs an operation whose circular buffers overlap a tensor. It
survives both failures; with "raise" it ends with the second one.
"""

import sys

import ttnn
from device import Checkpoints, attempt, memory, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
device = open_device()
check = Checkpoints()


def l1(rows, columns):
    return ttnn.empty([rows, columns], BF16, TILE, device, ttnn.L1_MEMORY_CONFIG)


class Beams:
    def __init__(self):
        self.scores = []

    def search(self):
        scratch = []
        while memory(device)["L1"]["largest_free"] > 100_000:
            scratch.append(l1(1024, 1024))  # line: scratch
            self.scores.append(l1(512, 512))  # line: islands
        for tensor in scratch:
            ttnn.deallocate(tensor)


def activations():
    return ttnn.empty([4096, 2048], BF16, TILE, device, ttnn.L1_MEMORY_CONFIG)  # line: fragmented


def crowd():
    tensors = []
    while memory(device)["L1"]["largest_free"] >= 40_000:
        tensors.append(l1(512, 512))  # line: crowd
    return tensors


def attention(x):
    return ttnn.softmax(x)  # line: clash


weights = [l1(512, 512) for _ in range(6)]  # line: weights
beams = Beams()
beams.search()
check("fragmented", device)
attempt("fragmented", activations)
beams.scores.clear()
operand = ttnn.empty([1, 1, 1024, 1024], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)
crowded = crowd()
check("clash", device)
if sys.argv[1:] == ["raise"]:
    attention(operand)
attempt("clash", lambda: attention(operand))
