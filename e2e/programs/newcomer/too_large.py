"""An operation whose circular buffers do not fit into L1 beside the activations that are kept there."""

import time

import ttnn
from device import open_device

TILE, BF16, L1 = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG


class Block:
    def __init__(self, device, edge):
        self.device = device
        self.activations = [ttnn.empty([edge, edge], BF16, TILE, device, L1) for _ in range(10)]

    def forward(self):
        x = ttnn.empty([32, 32 * 512], BF16, TILE, self.device, ttnn.DRAM_MEMORY_CONFIG)
        return ttnn.layer_norm(x)  # line: norm


device = open_device()
block = Block(device, 1856)
time.sleep(0.5)
block.forward()
