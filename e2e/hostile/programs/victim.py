"""The program whose figures must stay exact: plays a round for each line of its input.

Each round allocates and frees at random, compiles a program, opens another device, and prints
the figures of the library's own allocator with the numbers of allocations and frees so far.
What follows the figures frees as much as it allocates, so that the tracer's events can be seen
to have passed them.
"""

import json
import random
import sys
import time

import ttnn
from device import chips, close_device, memory, open_device

dice = random.Random(5)
device = open_device()
allocs = frees = 0
held = []


def empty(on=device):
    global allocs
    allocs += 1
    region = dice.choice([ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG])
    return ttnn.empty([dice.choice([32, 64, 128])] * 2, ttnn.bfloat16, ttnn.TILE_LAYOUT, on, region)


def free(tensor):
    global frees
    frees += 1
    ttnn.deallocate(tensor)


def new_objects():
    """A program and a device, for which the tracer needs room in its tables."""
    global allocs
    tensor = empty()
    device.clear_program_cache()
    allocs += 1
    free(ttnn.add(tensor, tensor))
    free(tensor)
    submesh = device.create_submesh(ttnn.MeshShape(1, 1))
    free(empty(submesh))
    ttnn.close_mesh_device(submesh)


print("opened", flush=True)
for line in sys.stdin:
    for _ in range(150):
        if len(held) > 40 or held and dice.random() < 0.45:
            free(held.pop(dice.randrange(len(held))))
        else:
            held.append(empty())
    new_objects()
    time.sleep(0.002)
    figures = {
        "time_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        "allocs": allocs,
        "frees": frees,
        "chips": chips(device),
        "regions": memory(device),
    }
    time.sleep(0.002)
    free(empty())
    print(json.dumps(figures), flush=True)
close_device(device)
