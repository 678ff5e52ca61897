"""Allocates around two captured traces, and replays one: traces_tracked.py first|second.

Before that it prints the ids of the buffers that the library's own tracker names for the trace. The first replay on a mock
device ends the process.
"""

import os
import sys

os.environ["TT_METAL_TRACE_ALLOC_TRACKING"] = "1"

import ttnn  # noqa: E402: after the tracker is on

tracker = ttnn._ttnn.operations.trace
device = ttnn.open_device(device_id=0, trace_region_size=1 << 20)


def tensor(memory=ttnn.DRAM_MEMORY_CONFIG, size=64):
    return ttnn.empty([size, size], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


def capture():
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    inside = tensor()
    ttnn.end_trace_capture(device, trace, cq_id=0)
    return trace, inside


a = tensor()
ttnn.relu(a)
first, x = capture()
between = [tensor(ttnn.L1_MEMORY_CONFIG) for _ in range(3)]
freed = tensor()
result = ttnn.relu(a)
shared = ttnn.gelu(a)  # compiles a program
ttnn.deallocate(freed)
second, y = capture()
released, z = capture()
after = [tensor(size=256) for _ in range(2)]
sharded = ttnn.create_sharded_memory_config([64, 64], core_grid=ttnn.CoreGrid(y=1, x=2), strategy=ttnn.ShardStrategy.HEIGHT)
shards = tensor(sharded)
ttnn.release_trace(device, released)
last = ttnn.add(a, a, memory_config=ttnn.L1_MEMORY_CONFIG)
del between[0], y
trace = first if sys.argv[1] == "first" else second
print("TRACKED", *sorted(tracker.get_unsafe_tracked_ids(device, trace)), file=sys.stderr)
tracker.execute_trace(device, trace, cq_id=0, blocking=True)
