"""A decode loop with weights and caches in DRAM, and activations in L1: decode.py [freed] [TOKENS]. Each layer holds its input beside a
tensor of which it needs the sum only, and the loop holds the last token's output. With "freed" the layer frees these
when they are not needed any more."""

import sys

import ttnn
from device import close_device, open_device

LAYERS, TOKENS = 4, int(sys.argv[-1]) if sys.argv[-1].isdigit() else 6
device = open_device()
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG


def tensor(rows, memory):
    return ttnn.empty([1, 1, rows, 256], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


class Layer:
    def __init__(self):
        self.weight = tensor(256, DRAM)
        self.cache = tensor(256, DRAM)

    def forward(self, x):
        wide = ttnn.concat([x, x, x, x], dim=2, memory_config=L1)  # WIDE
        h = ttnn.slice(wide, [0, 0, 0, 0], [1, 1, 256, 256], memory_config=L1)  # SLICE
        if "freed" in sys.argv:
            ttnn.deallocate(wide)
        h = ttnn.matmul(h, self.weight, memory_config=L1)
        h = ttnn.add(h, self.cache, memory_config=L1)
        ttnn.add(self.cache, self.weight, output_tensor=self.cache)
        h = ttnn.gelu(h, memory_config=L1)
        up = ttnn.concat([h, h, h, h, h], dim=2, memory_config=L1)  # PEAK
        up = ttnn.slice(up, [0, 0, 0, 0], [1, 1, 256, 256], memory_config=L1)
        return ttnn.add(x, up, memory_config=L1)


layers = [Layer() for _ in range(LAYERS)]
token = tensor(256, L1)
results = []
for _ in range(TOKENS):
    x = ttnn.relu(token, memory_config=L1)
    for layer in layers:
        x = layer.forward(x)
    results.append(ttnn.relu(x, memory_config=DRAM))
for result in results[-1000:]:  # the queue of a mock device takes only thousands of reads, and waits then
    ttnn.from_device(result)
del layers, layer, token, x, results, result
close_device(device)
