"""Allocates and frees at random, so that regions fill, fragment and overflow: random_allocations.py SEED STEPS."""

import random
import sys

import ttnn
from device import attempt, close_device, open_device

seed, steps = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
device = open_device(trace_region_size=1 << 20)


def interleaved(region, most):
    tiles = int(most ** chance.random())
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, region)
    return ttnn.empty([tiles * 32, 32], chance.choice([ttnn.bfloat16, ttnn.float32]), ttnn.TILE_LAYOUT, device, memory)


def sharded(region, most):
    cores = chance.randint(1, 32)
    grid = ttnn.num_cores_to_corerangeset(cores, ttnn.CoreCoord(8, 7), True)
    height = 32 * chance.randint(1, most)
    spec = ttnn.ShardSpec(grid, [height, 32], ttnn.ShardOrientation.ROW_MAJOR)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, region, spec)
    return ttnn.empty([height * cores, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


KINDS = [
    lambda: interleaved(ttnn.BufferType.DRAM, 100000),
    lambda: interleaved(ttnn.BufferType.L1, 20000),
    lambda: interleaved(ttnn.BufferType.L1, 500),
    lambda: sharded(ttnn.BufferType.L1, 12),
    lambda: sharded(ttnn.BufferType.L1_SMALL, 3),
]
live = []
for step in range(steps):
    grows = 0.75 if step // 200 % 2 == 0 else 0.35
    if not live or chance.random() < grows:
        tensor = attempt("allocation", chance.choice(KINDS))
        live += [tensor] if tensor is not None else []
    else:
        ttnn.deallocate(live.pop(chance.randrange(len(live))))
close_device(device)
