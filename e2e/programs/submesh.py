"""Allocates on a mesh and on its submeshes: each has an allocator of its own."""

import ttnn
from device import Checkpoints, close_device, open_device

device = open_device()
check = Checkpoints()
halves = device.create_submeshes(ttnn.MeshShape(1, 4))
devices = [device, *halves]
check("opened", *devices)
held = []
for i in range(4):
    for n, on in enumerate(devices):
        for config in (ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG):
            held.append(ttnn.empty([256 * (n + 1), 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, on, config))
    check(f"allocated {i}", *devices)
for tensor in held[2::7]:
    ttnn.deallocate(tensor)
check("holes", *devices)
held.clear()
check("freed", *devices)
for half in halves:
    ttnn.close_mesh_device(half)
close_device(device)
print("done")
