"""A transformer that answers requests until its standard input ends.

Embedding, attention with a cache of keys and values, and an MLP in each of a few layers, with the
program cache on. It writes a line of JSON with the addresses of what is live all the time once it
has answered the first request. With the argument `trace` a request was captured as a trace, on a
release whose mock device can do that.
"""

import json
import sys
import threading

import ttnn
from device import open_device

TILE, ROWS, BF16, BFP8 = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT, ttnn.bfloat16, ttnn.bfloat8_b
DRAM, L1 = ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
WORDS, HEADS, HEAD, TOKENS, CONTEXT = 512, 4, 64, 32, 128
WIDTH = HEADS * HEAD

device = open_device(l1_small_size=32768, trace_region_size=1 << 20)
device.enable_program_cache()


def weight(*shape, dtype=BF16, layout=TILE, where=DRAM):
    return ttnn.empty(list(shape), dtype, layout, device, where)


def cores(x0, y0, x1, y1):
    return ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(x0, y0), ttnn.CoreCoord(x1, y1))})


class Attention:
    def __init__(self):
        self.wqkv, self.wo = weight(1, 1, WIDTH, 3 * WIDTH), weight(1, 1, WIDTH, WIDTH)
        self.cache = {name: ttnn.zeros([1, HEADS, CONTEXT, HEAD], BF16, TILE, device, DRAM) for name in ("keys", "values")}

    def forward(self, x):
        split = ttnn.experimental.nlp_create_qkv_heads
        query, key, value = split(ttnn.linear(x, self.wqkv), num_heads=HEADS, num_kv_heads=HEADS, transpose_k_heads=False)
        ttnn.fill_cache(self.cache["keys"], key, 0)
        ttnn.fill_cache(self.cache["values"], value, 0)
        scores = ttnn.softmax(ttnn.matmul(query, ttnn.transpose(self.cache["keys"], -2, -1)), dim=-1)
        heads = ttnn.experimental.nlp_concat_heads(ttnn.matmul(scores, self.cache["values"]))
        return ttnn.linear(heads, self.wo)


class MLP:
    def __init__(self):
        self.w1, self.w2 = weight(1, 1, WIDTH, 4 * WIDTH), weight(1, 1, 4 * WIDTH, WIDTH, dtype=BFP8, where=L1)

    def forward(self, x):
        return ttnn.linear(ttnn.gelu(ttnn.linear(x, self.w1, memory_config=L1)), self.w2)


class Layer:
    def __init__(self):
        self.attention, self.mlp = Attention(), MLP()
        self.norm = weight(1, 1, WIDTH // 32, 32, layout=ROWS)

    def forward(self, x):
        x = ttnn.add(x, self.attention.forward(ttnn.rms_norm(x, weight=self.norm)))
        return ttnn.add(x, self.mlp.forward(ttnn.rms_norm(x, weight=self.norm)))


class Transformer:
    def __init__(self, layers=3):
        self.words = weight(WORDS, WIDTH, layout=ROWS)
        self.layers = [Layer() for _ in range(layers)]
        self.head = weight(1, 1, WIDTH, WORDS)
        self.tokens = ttnn.zeros([1, TOKENS], ttnn.uint32, ROWS, device, DRAM)
        self.state = ttnn.zeros([1, 1, TOKENS, WIDTH], BF16, TILE, device, L1)
        self.semaphore = ttnn.create_global_semaphore(device, cores(0, 0, 3, 3), 0)
        self.ring = ttnn.create_global_circular_buffer(device, [(ttnn.CoreCoord(0, 0), cores(1, 1, 2, 2))], 3200)

    def forward(self):
        x = ttnn.reshape(ttnn.embedding(self.tokens, self.words, layout=TILE), [1, 1, TOKENS, WIDTH])
        for layer in self.layers:
            x = layer.forward(x)
        ttnn.copy(x, self.state)
        return ttnn.softmax(ttnn.linear(x, self.head), dim=-1)


def look(size):
    """Pools an image. The programs of this have tensors of their own."""
    image = ttnn.empty([1, 1, size * size, 32], BF16, ROWS, device, L1)
    ttnn.max_pool2d(
        input_tensor=image, batch_size=1, input_h=size, input_w=size, channels=32,
        kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1],
    )  # fmt: skip


def held():
    tensors = {f"model.{name}": getattr(model, name) for name in ("words", "head", "tokens", "state")}
    for i, layer in enumerate(model.layers):
        attention, mlp, path = layer.attention, layer.mlp, f"model.layers[{i}]"
        tensors |= {f"{path}.attention.{name}": getattr(attention, name) for name in ("wqkv", "wo")}
        tensors |= {f"{path}.attention.cache['{name}']": tensor for name, tensor in attention.cache.items()}
        tensors |= {f"{path}.mlp.w1": mlp.w1, f"{path}.mlp.w2": mlp.w2, f"{path}.norm": layer.norm}
    addresses = {path: tensor.buffer_address() for path, tensor in tensors.items()}
    return addresses | {"model.semaphore": ttnn.get_global_semaphore_address(model.semaphore)}


model = Transformer()
if "trace" in sys.argv:
    model.forward()  # compiled programs only can be captured
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    model.forward()
    ttnn.end_trace_capture(device, trace, cq_id=0)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
said = False
while not ended.wait(0.01):  # for the next request
    model.forward()
    look(16)
    if not said:
        print(json.dumps(held()), flush=True)
        said = True
