"""An operation whose circular buffers do not fit into L1 beside the activations that are kept there."""

import ttnn
from device import idle, open_device

TILE, BF16, L1 = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG


class Block:
    def __init__(self, device, edge):
        self.device = device
        self.activations = [ttnn.empty([edge, edge], BF16, TILE, device, L1) for _ in range(12)]

    def forward(self):
        x = ttnn.empty([1024, 1024], BF16, TILE, self.device, ttnn.DRAM_MEMORY_CONFIG)
        return ttnn.softmax(x, dim=-1)  # line: scores


device = open_device()
block = Block(device, 1856)
idle()
block.forward()
