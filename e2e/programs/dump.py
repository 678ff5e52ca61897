"""Allocates buffers in marked lines, and keeps them until its standard input ends.

The figures of the library's own allocator go to the checkpoints before it prints
"holding". The lines that allocate are marked with names.
"""

import sys

import ttnn
from device import Checkpoints, chips, close_device, open_device  # noqa: F401
from mix import sharded

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16


def weight(device, size):
    return ttnn.empty([size, size], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)  # line: weight


class Attention:
    def __init__(self, device, size):
        self.wq = weight(device, size)
        self.wk = weight(device, size)

    def forward(self, x):
        q = ttnn.matmul(x, self.wq)  # line: matmul
        k = ttnn.matmul(x, self.wk, memory_config=ttnn.L1_MEMORY_CONFIG)  # line: matmul in L1
        return q + k  # line: plus


class Model:
    def __init__(self, device, layers, size):
        self.layers = [Attention(device, size) for _ in range(layers)]

    def forward(self, x):
        held = []
        for layer in self.layers:
            x = layer.forward(x)
            held.append(x)
        return held


def main():
    device = open_device(trace_region_size=1 << 20)
    check = Checkpoints()
    if len(sys.argv) > 1:  # be attached to first
        print("opened", flush=True)
        sys.stdin.readline()
    model = Model(device, 3, 256)
    x = ttnn.zeros([256, 256], BF16, TILE, device)  # line: zeros
    held = model.forward(x)  # noqa: F841: to be found
    shards = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    table = ttnn.empty([1, 1, 512, 64], BF16, TILE, device, sharded(shards, (32, 64), 4, 4))  # noqa: F841 # line: table
    small = ttnn.empty([1, 1, 128, 32], BF16, TILE, device, sharded(shards, (32, 32), 4, 1, "L1_SMALL"))  # noqa: F841 # line: small
    ttnn.dump_tensor("saved.tensorbin", ttnn.from_device(x))
    loaded = ttnn.load_tensor("saved.tensorbin", device=device)  # noqa: F841 # line: load
    check("holding", device)
    print("holding", flush=True)
    sys.stdin.read()
    close_device(device)


main()
