"""A transformer whose weights all come from one line, of a helper. It runs for about a second.

The largest weights are those of the MLPs, `blocks[*].mlp.up` and `.down`.
"""

import time

import ttnn
from device import close_device, idle, open_device

TILE, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG
WIDTH = 256


def weight(device, rows, columns):
    return ttnn.empty([rows, columns], BF16, TILE, device, DRAM)  # line: weight


class Attention:
    def __init__(self, device):
        self.qkv = weight(device, WIDTH, 3 * WIDTH)
        self.out = weight(device, WIDTH, WIDTH)

    def forward(self, x):
        return ttnn.matmul(ttnn.relu(ttnn.matmul(x, self.qkv))[:, :WIDTH], self.out)


class MLP:
    def __init__(self, device):
        self.up = weight(device, WIDTH, 8 * WIDTH)
        self.down = weight(device, 8 * WIDTH, WIDTH)

    def forward(self, x):
        return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, self.up)), self.down)


class Block:
    def __init__(self, device):
        self.attention, self.mlp = Attention(device), MLP(device)

    def forward(self, x):
        return self.mlp.forward(self.attention.forward(x))


class Model:
    def __init__(self, device, blocks):
        self.blocks = [Block(device) for _ in range(blocks)]

    def forward(self, x):
        for block in self.blocks:
            x = block.forward(x)
        return x


device = open_device()
model = Model(device, 6)
for _ in range(10):
    model.forward(weight(device, 32, WIDTH))
    time.sleep(0.1)
idle()
close_device(device)
