"""Runs operations while the library captures its own report, which it writes to the folder argv[1]."""

import pathlib
import sys
import types

import ttnn
import ttnn.graph
import ttnn.graph_report
from device import close_device, open_device

# the capture asks whether arguments are tensors of torch, which is not installed
sys.modules["torch"] = types.SimpleNamespace(Tensor=type("Tensor", (), {}))

device = open_device()
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
SHARDED = ttnn.create_sharded_memory_config([1, 1, 512, 512], ttnn.CoreGrid(y=4, x=4), ttnn.ShardStrategy.BLOCK)


def model():
    a = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, L1)
    w = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, DRAM)
    b = ttnn.matmul(a, w, memory_config=L1)
    c = ttnn.softmax(b, dim=-1, memory_config=L1)
    d = ttnn.to_memory_config(c, SHARDED)
    words = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, DRAM)
    tokens = ttnn.zeros([1, 32], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, DRAM)
    e = ttnn.embedding(tokens, words, layout=ttnn.TILE_LAYOUT)
    ttnn.deallocate(b)
    return ttnn.add(d, d), e


report = pathlib.Path(sys.argv[1])
report.mkdir()
with ttnn.graph.full_graph_capture(str(report / "capture.json"), slow_dispatch=False):
    kept = model()
    kept = model()  # from the program cache
close_device(device)
ttnn.graph_report.import_report(report / "capture.json", report)
