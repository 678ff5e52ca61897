"""Clones a tensor on all chips of TTMEM_MESH, and again in a captured trace that is replayed three times.
Every result is compared with what it must be."""

import sys

import numpy as np
import ttnn
from device import Checkpoints, close_device, open_device

VALUES = np.arange(32 * 32, dtype=np.float32).reshape(32, 32) % 128


def right(tensor):
    shards = ttnn.get_device_tensors(ttnn.from_device(tensor))
    return all(np.array_equal(np.array(s.to(ttnn.ROW_MAJOR_LAYOUT).to_list()), VALUES) for s in shards)


device = open_device(l1_small_size=0, trace_region_size=1 << 20)
check = Checkpoints()
check("opened", device)
host = ttnn.Tensor(VALUES.flatten().tolist(), [32, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT).to(ttnn.TILE_LAYOUT)
tiles = ttnn.to_device(host, device)
check("copied from the host", device)
cloned = ttnn.clone(tiles)
check("cloned", device)
wrong = not right(cloned)
trace = ttnn.begin_trace_capture(device, cq_id=0)
captured = ttnn.clone(tiles)
ttnn.end_trace_capture(device, trace, cq_id=0)
check("captured", device)
for _ in range(3):
    ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
check("replayed", device)
wrong = wrong or not right(captured)
ttnn.release_trace(device, trace)
check("released", device)
close_device(device)
sys.exit("wrong contents" if wrong else 0)
