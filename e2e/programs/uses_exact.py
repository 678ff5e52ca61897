"""Runs programs beside thousands of live buffers: uses_exact.py FILE LIVE RUNS.

Each operation takes tensors that are chosen among the live ones at random, and runs one program. A line of FILE has the region
and address of each tensor that it reads or writes. A result takes the place of a live tensor, which is freed.
"""

import json
import random
import sys

import ttnn
from device import close_device, open_device
from marks import mark

file, live, runs = open(sys.argv[1], "w"), int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(live)
device = open_device()
SHAPE = [1, 1, 64, 64]
SHARDS = ttnn.create_sharded_memory_config(SHAPE, core_grid=ttnn.CoreGrid(y=1, x=2), strategy=ttnn.ShardStrategy.HEIGHT)
MEMORY = {"DRAM": ttnn.DRAM_MEMORY_CONFIG, "L1": ttnn.L1_MEMORY_CONFIG, "shards": SHARDS}
COUNT = {"L1": live // 10, "shards": live // 60}


def tensor(memory):
    return ttnn.empty(SHAPE, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, MEMORY[memory])


def one(function, **named):
    return lambda a, to: (function(a[0], memory_config=MEMORY[to], **named), to)


def two(function):
    return lambda a, to: (function(a[0], a[1], memory_config=MEMORY[to]), to)


def into(function):
    def write(a, to):
        function(a[0], a[1], output_tensor=a[2])
        return None, to

    return write


# by name: the number of tensors, and what is called with them and the memory of the result
OPERATIONS = {
    **{name: (1, one(getattr(ttnn, name))) for name in "relu exp sqrt gelu neg abs silu clone".split()},
    **{name: (2, two(getattr(ttnn, name))) for name in "add subtract multiply maximum eq matmul".split()},
    "softmax": (1, one(ttnn.softmax, dim=-1)),
    "add into": (3, into(ttnn.add)),
    "multiply into": (3, into(ttnn.multiply)),
    "transpose": (1, lambda a, to: (ttnn.transpose(a[0], -1, -2, memory_config=MEMORY[to]), to)),
    "where": (3, lambda a, to: (ttnn.where(a[0], a[1], a[2], memory_config=MEMORY[to]), to)),
    "rms_norm": (1, one(ttnn.rms_norm)),
    "to shards": (1, lambda a, to: (ttnn.interleaved_to_sharded(a[0], SHARDS), "shards")),
}
OF_SHARDS = {
    "relu of shards": (1, lambda a, to: (ttnn.relu(a[0]), "shards")),
    "add of shards": (2, lambda a, to: (ttnn.add(a[0], a[1], memory_config=SHARDS), "shards")),
    "from shards": (1, lambda a, to: (ttnn.sharded_to_interleaved(a[0], MEMORY[to]), to)),
}


def place(t):
    return {"region": str(t.memory_config().buffer_type).split(".")[-1], "address": t.buffer_address()}


# Before 0.72, DRAM begins at 32: its first addresses are too low to be told from other numbers.
low = ttnn.empty([576 * 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, MEMORY["DRAM"])
tensors = {memory: [tensor(memory) for _ in range(COUNT.get(memory, live - sum(COUNT.values())))] for memory in MEMORY}
names = list(OPERATIONS) + list(OF_SHARDS)
mark("begin")
for run in range(runs):
    name = names[run % len(names)]
    of = ["shards"] if name in OF_SHARDS else ["DRAM", "L1"]
    count, call = {**OPERATIONS, **OF_SHARDS}[name]
    arguments = [chance.choice(tensors[chance.choice(of)]) for _ in range(count)]
    result, memory = call(arguments, chance.choice(["DRAM", "L1"]))
    print(json.dumps({"name": name, "tensors": [place(t) for t in [*arguments, *([] if result is None else [result])]]}), file=file)
    del arguments
    if result is not None:
        i = chance.randrange(len(tensors[memory]))
        ttnn.deallocate(tensors[memory][i])
        tensors[memory][i] = result
mark("end")
file.close()
close_device(device)
