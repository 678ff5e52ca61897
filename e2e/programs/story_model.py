"""The model of the story: a small decoder that generates tokens, and leaks nothing.

It loads weights in a loop, takes pages for keys and values until its context is full,
replaces its state with each token, and makes many temporaries. The lines that a test
checks are marked with names.
"""

import ttnn
from device import close_device, open_device

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
WIDTH = 128


def empty(device, rows, columns):
    return ttnn.empty([rows, columns], BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)


class Attention:
    def __init__(self, device):
        self.device = device
        self.query, self.out = (empty(device, WIDTH, WIDTH) for _ in range(2))  # line: weights
        self.pages = []

    def forward(self, x, context):
        if len(self.pages) < context:
            self.pages.append(empty(self.device, 64, WIDTH))  # line: pages
        query = ttnn.matmul(x, self.query)  # line: query
        scores = ttnn.softmax(query, dim=-1)
        return ttnn.matmul(scores, self.out)


class Layer:
    def __init__(self, device):
        self.attention = Attention(device)
        self.up = empty(device, WIDTH, 2 * WIDTH)
        self.down = empty(device, 2 * WIDTH, WIDTH)

    def forward(self, x, context):
        x = ttnn.add(x, self.attention.forward(x, context))
        return ttnn.add(x, ttnn.matmul(ttnn.gelu(ttnn.matmul(x, self.up)), self.down))


class Decoder:
    """A decoder with so many layers, of which each keeps pages up to a context."""

    def __init__(self, device, layers, context):
        self.device, self.context = device, context
        self.layers = [Layer(device) for _ in range(layers)]
        self.state = empty(device, 32, WIDTH)

    def forward(self, token):
        x = ttnn.add(self.state, token)
        for layer in self.layers:
            x = layer.forward(x, self.context)
        self.state = x
        return ttnn.softmax(x, dim=-1)  # line: result

    def generate(self, tokens):
        result = None
        for _ in range(tokens):
            result = self.forward(empty(self.device, 32, WIDTH))
        return result


if __name__ == "__main__":
    device = open_device()
    model = Decoder(device, 4, 12)
    model.generate(50)
    close_device(device)
