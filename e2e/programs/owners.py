"""A small model whose tensors are held in many ways.

It writes a line of JSON with the path, type, shape and layout of each tensor by its address, and
waits for a line of standard input.
"""

import json
import sys

import ttnn
from device import open_device

device = open_device()


def tensor(*shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, where=ttnn.DRAM_MEMORY_CONFIG):
    return ttnn.empty(list(shape), dtype, layout, device, where)


class Layer:
    def __init__(self, n):
        self.wq = tensor(1, 32, 32 * n, 64)
        self.bias = {"k": tensor(32, 32, dtype=ttnn.bfloat8_b, where=ttnn.L1_MEMORY_CONFIG)}


class Model:
    def __init__(self):
        self.layers = [Layer(n) for n in range(1, 4)]
        self.table = tensor(5, 7, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)


model = Model()
view = ttnn.reshape(tensor(2, 32, 32), [64, 32])


def main():
    kept = ttnn.add(model.layers[0].wq, model.layers[0].wq)
    held = {
        "view": view,
        "model.table": model.table,
        "local kept of main()": kept,
    }
    for i, layer in enumerate(model.layers):
        held[f"model.layers[{i}].wq"], held[f"model.layers[{i}].bias['k']"] = layer.wq, layer.bias["k"]
    addresses = {path: t.buffer_address() for path, t in held.items()}
    del held
    print(json.dumps(addresses), flush=True)
    sys.stdin.readline()


main()
