"""A mesh and its submesh, or two, assign the same addresses of a chip."""

import sys

import ttnn
from device import open_device, close_device

mesh = open_device()
config = {"DRAM": ttnn.DRAM_MEMORY_CONFIG, "L1": ttnn.L1_MEMORY_CONFIG}[sys.argv[1]]
kind = (ttnn.bfloat16, ttnn.TILE_LAYOUT)
replicated = ttnn.empty([512, 1024], *kind, mesh, config)  # line: replicated
sub = mesh.create_submeshes(ttnn.MeshShape(1, 1))[3]
own = [ttnn.empty([1024, 1024], *kind, sub, config) for _ in range(3)]  # line: own
if len(sys.argv) > 2:
    third = mesh.create_submeshes(ttnn.MeshShape(1, 1))[3]
    extra = ttnn.empty([256, 1024], *kind, third, config)
print("held", flush=True)
ttnn.deallocate(replicated)
print("freed", flush=True)
ttnn.close_mesh_device(sub)
close_device(mesh)
