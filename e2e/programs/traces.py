"""Captures two traces and replays the second. A mock device captures operations in some releases only,
and its first replay ends the process."""

import sys

import ttnn

operations = sys.argv[1] == "operations"
device = ttnn.open_device(device_id=0, trace_region_size=1 << 20)
a = ttnn.empty([64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
ttnn.relu(a)  # line: compiled
for last in (False, True):
    trace = ttnn.begin_trace_capture(device, cq_id=0)  # line: begin
    for _ in range(2 if operations else 0):
        b = ttnn.relu(a)  # line: captured
    ttnn.end_trace_capture(device, trace, cq_id=0)  # line: end
    if not last:
        ttnn.release_trace(device, trace)  # line: release
later = [ttnn.empty([256, 256], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG) for _ in range(3)]  # line: unsafe
freed = ttnn.empty([64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
del freed
for _ in range(3):
    ttnn.execute_trace(device, trace, cq_id=0, blocking=True)  # line: replay
ttnn.release_trace(device, trace)
ttnn.close_device(device)
