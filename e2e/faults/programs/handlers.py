"""Does most of what has a probe, again and again: handlers.py."""

import os
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "programs"))

import ttnn  # noqa: E402
from device import close_device, open_device  # noqa: E402

# tt-metal's watcher leaves two files open each time that a device is opened
most = max(1 << 16, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
size = 32
print("ready", flush=True)
while True:
    device = open_device(trace_region_size=1 << 20)
    size = size % 2048 + 32  # no program has been compiled for it
    tensors = [
        ttnn.empty([size, size], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, config)
        for config in (ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG)
    ]
    try:
        ttnn.empty([32768, 32768], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    except RuntimeError:
        pass
    for _ in range(2):
        ttnn.deallocate(ttnn.add(tensors[0], tensors[0]))
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    ttnn.release_trace(device, trace)
    tensors.clear()
    close_device(device)
