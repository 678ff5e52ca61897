"""A small model, run twice by `make demo`."""

import ttnn
from device import close_device, open_device

device = open_device(l1_small_size=32768)


def weights(*shape):
    return ttnn.empty(list(shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


class Attention:
    def __init__(self, size):
        self.qkv = [weights(size, size) for _ in range(3)]
        self.out = weights(size, size)

    def forward(self, x):
        q, k, v = (ttnn.matmul(x, w) for w in self.qkv)
        scores = ttnn.softmax(ttnn.matmul(q, ttnn.transpose(k, -2, -1)))
        return ttnn.matmul(ttnn.matmul(scores, v), self.out)


class Model:
    def __init__(self, layers, size):
        self.layers = [Attention(size) for _ in range(layers)]

    def forward(self, x):
        for layer in self.layers:
            x = ttnn.add(x, layer.forward(x))
        return x


model = Model(layers=4, size=512)
for _ in range(2):
    tokens = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    result = model.forward(tokens)
    print("result", result.shape)
try:
    ttnn.empty([1, 1, 16384, 16384], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
except RuntimeError:
    print("a tensor of 512 MiB does not fit into L1")
close_device(device)
