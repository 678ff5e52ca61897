"""A small transformer: small_transformer.py clean|leaking ITERATIONS.

Embedding, attention and MLP of a few layers, with weights that stay until the device is closed,
and the program cache on. `leaking` keeps an activation of each iteration, at the marked line.
"""

import sys

import ttnn
from device import close_device, open_device

TILE, ROWS, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG
WORDS, WIDTH, TOKENS = 512, 128, 64


class Attention:
    def __init__(self, device):
        self.query, self.key, self.value, self.out = (ttnn.empty([1, 1, WIDTH, WIDTH], BF16, TILE, device, DRAM) for _ in range(4))

    def forward(self, x):
        query, key, value = (ttnn.matmul(x, weight) for weight in (self.query, self.key, self.value))
        scores = ttnn.softmax(ttnn.matmul(query, ttnn.transpose(key, -2, -1)), dim=-1)
        return ttnn.matmul(ttnn.matmul(scores, value), self.out)


class MLP:
    def __init__(self, device):
        self.up = ttnn.empty([1, 1, WIDTH, 4 * WIDTH], BF16, TILE, device, DRAM)
        self.down = ttnn.empty([1, 1, 4 * WIDTH, WIDTH], BF16, TILE, device, DRAM)

    def forward(self, x):
        return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, self.up)), self.down)


class Layer:
    def __init__(self, device):
        self.attention, self.mlp = Attention(device), MLP(device)

    def forward(self, x):
        x = ttnn.add(x, self.attention.forward(x))
        return ttnn.add(x, self.mlp.forward(x))


class Transformer:
    def __init__(self, device, layers=3):
        self.device = device
        self.words = ttnn.empty([WORDS, WIDTH], BF16, ROWS, device, DRAM)
        self.layers = [Layer(device) for _ in range(layers)]
        self.head = ttnn.empty([1, 1, WIDTH, WORDS], BF16, TILE, device, DRAM)

    def forward(self, tokens):
        x = ttnn.reshape(ttnn.embedding(tokens, self.words, layout=TILE), [1, 1, TOKENS, WIDTH])
        for layer in self.layers:
            x = layer.forward(x)
        return self.result(x)

    def result(self, x):
        return ttnn.softmax(ttnn.matmul(x, self.head), dim=-1)

    def infer(self, iterations):
        tokens = ttnn.zeros([1, TOKENS], ttnn.uint32, ROWS, self.device, DRAM)
        for _ in range(iterations):
            self.forward(tokens)


class Leaking(Transformer):
    def __init__(self, device):
        super().__init__(device)
        self.activations = []

    def result(self, x):
        self.activations.append(ttnn.add(x, x))  # line: leak
        return super().result(x)


if __name__ == "__main__":
    device = open_device()
    device.enable_program_cache()
    model = (Leaking if sys.argv[1] == "leaking" else Transformer)(device)
    model.infer(int(sys.argv[2]))
    close_device(device)
