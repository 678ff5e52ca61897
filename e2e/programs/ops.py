"""Runs operations on a cold program cache and on a warm one, each in a line of its own.

With a file as argument it writes there what the library's own graph capture says of each on a
cold cache and on a warm one, and what a capture that dispatches nothing says ("plan").
"""

import json
import sys

import ttnn
from device import close_device, memory, open_device

device = open_device()
L1 = ttnn.L1_MEMORY_CONFIG


def tensor():
    return ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, L1)


a, b = tensor(), tensor()
words = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
tokens = ttnn.zeros([1, 32], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
OPS = {
    "ttnn.add": (ttnn.add, (a, b), {}),
    "ttnn.untilize": (ttnn.untilize, (a,), {}),
    "ttnn.matmul": (ttnn.matmul, (a, b), {}),
    "ttnn.softmax": (ttnn.softmax, (a,), {"dim": -1}),
    "ttnn.layer_norm": (ttnn.layer_norm, (a,), {}),
    "ttnn.transpose": (ttnn.transpose, (a, -1, -2), {}),
    "ttnn.embedding": (ttnn.embedding, (tokens, words), {"layout": ttnn.TILE_LAYOUT}),  # which has a scratchpad
}

graph = ttnn._ttnn.graph


def captured(mode, op, args, named):
    graph.begin_graph_capture(mode)
    result = op(*args, memory_config=L1, **named)
    usage = graph.extract_resource_usage_per_core(graph.end_graph_capture())
    del result
    return {
        "cb_bytes": usage.peak_cb,
        "dfb_bytes": usage.peak_dataflow_buffer,
        "scratchpad_bytes": usage.peak_scratchpad,
        "tensor_bytes": usage.peak_l1,
    }


if len(sys.argv) > 1:
    said = {"live": memory(device)["L1"]["allocated_per_bank"]}
    for when, mode in (("cold", "NORMAL"), ("warm", "NORMAL"), ("plan", "NO_DISPATCH")):
        said[when] = {name: captured(getattr(graph.RunMode, mode), *call) for name, call in OPS.items()}
    with open(sys.argv[1], "w") as f:
        json.dump(said, f)
else:
    for op, args, named in OPS.values():
        result = op(*args, memory_config=L1, **named)  # line: cold
        del result
    for op, args, named in OPS.values():
        for _ in range(3):
            result = op(*args, memory_config=L1, **named)  # line: warm
            del result
close_device(device)
