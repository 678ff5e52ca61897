"""A small model that generates for a while: top_model.py [STEPS [PAUSE [BURST]]].

Each step keeps a key and a value in L1, those of the last 48, and, at the marked line,
forgets to free one tensor in DRAM. It pauses PAUSE seconds after each step, in which it
allocated and freed BURST buffers besides. Prints each step, then waits for its input's end.
"""

import sys
import time

import ttnn
from device import close_device, open_device

TILE, BF16, L1, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0
burst = int(sys.argv[3]) if len(sys.argv) > 3 else 0
device = open_device()


def weight(*shape):
    return ttnn.empty(list(shape), BF16, TILE, device, DRAM)  # line: weight


class Attention:
    def __init__(self, size):
        self.wq, self.wk, self.wv, self.wo = (weight(size, size) for _ in range(4))
        self.cache = []

    def forward(self, x):
        q, k, v = (ttnn.matmul(x, w) for w in (self.wq, self.wk, self.wv))
        self.cache = [*self.cache[-47:], (ttnn.to_memory_config(k, L1), ttnn.to_memory_config(v, L1))]  # line: cache
        scores = ttnn.softmax(ttnn.matmul(q, ttnn.transpose(k, -2, -1)))
        return ttnn.matmul(ttnn.matmul(scores, v), self.wo)


class MLP:
    def __init__(self, size):
        self.up, self.down = weight(size, 4 * size), weight(4 * size, size)

    def forward(self, x):
        return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, self.up)), self.down)


class Layer:
    def __init__(self, size):
        self.attention, self.mlp = Attention(size), MLP(size)

    def forward(self, x):
        x = ttnn.add(x, self.attention.forward(x))
        return ttnn.add(x, self.mlp.forward(x))


class Model:
    def __init__(self, layers, size):
        self.layers = [Layer(size) for _ in range(layers)]
        self.log = []

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        self.log.append(ttnn.add(x, x))  # line: leak
        return x


def churn(n):
    for _ in range(n):
        ttnn.deallocate(ttnn.empty([32, 32], BF16, TILE, device, DRAM))


model = Model(layers=4, size=512)
tokens = ttnn.empty([1, 1, 64, 512], BF16, TILE, device, DRAM)
for step in range(steps):
    model.forward(tokens)
    churn(burst)
    print("step", step, flush=True)
    time.sleep(pause)
sys.stdin.read()
close_device(device)
