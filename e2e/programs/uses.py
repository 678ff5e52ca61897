"""Runs operations on a cold program cache and twice on a warm one, each time on new tensors. Each is a moment with its
name, and a line of the file in the argument has the addresses of its tensors. "slow" behind it selects slow dispatch."""

import json
import os
import sys

if "slow" in sys.argv:
    os.environ["TT_METAL_SLOW_DISPATCH_MODE"] = "1"

import ttnn  # noqa: E402
from device import close_device, open_device  # noqa: E402
from marks import mark  # noqa: E402

device = open_device()
MEMORY = {"DRAM": ttnn.DRAM_MEMORY_CONFIG, "L1": ttnn.L1_MEMORY_CONFIG}
TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT


def tensor(shape=(1, 1, 64, 64), dtype=ttnn.bfloat16, layout=TILE, memory=ttnn.DRAM_MEMORY_CONFIG):
    return ttnn.empty(list(shape), dtype, layout, device, memory)


def sharded(shape=(1, 1, 256, 32), cores=8):
    return ttnn.create_sharded_memory_config(
        shape, core_grid=ttnn.CoreGrid(y=1, x=cores), strategy=ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=False
    )


def cases(m):
    """Operations by name, each with its tensors, made anew for each run, and what is called with them."""

    def one(shape=(1, 1, 64, 64), **named):
        return [tensor(shape, memory=m, **named)]

    def two():
        return [tensor(memory=m), tensor(memory=m)]

    for name in "relu exp sqrt gelu tanh sigmoid neg abs silu rsqrt reciprocal log square sin cos floor sign isnan".split():
        yield name, one, getattr(ttnn, name)
    for name in "add subtract multiply divide eq gt lt ne ge maximum minimum logical_and squared_difference".split():
        yield name, two, getattr(ttnn, name)
    for name in "sum mean max min softmax".split():
        yield name, one, lambda a, op=getattr(ttnn, name): op(a, dim=-1)
    yield "sum.h", one, lambda a: ttnn.sum(a, dim=-2)
    yield "add.scalar", one, lambda a: ttnn.add(a, 2.5)
    yield "add.wide", lambda: [tensor((1, 1, 64, 64), memory=m), tensor((1, 1, 1, 64), memory=m)], ttnn.add
    yield "matmul", two, ttnn.matmul
    yield "matmul.large", lambda: [tensor((1, 1, 256, 512), memory=m), tensor((1, 1, 512, 256), memory=m)], ttnn.matmul
    yield "linear", lambda: [*two(), tensor((1, 64), memory=m)], lambda a, b, c: ttnn.linear(a, b, bias=c)
    yield "layer_norm", one, ttnn.layer_norm
    yield "layer_norm.weight", lambda: [tensor(memory=m), tensor((1, 1, 1, 64), memory=m)], lambda a, w: ttnn.layer_norm(a, weight=w)
    yield "rms_norm", one, ttnn.rms_norm
    yield "transpose", one, lambda a: ttnn.transpose(a, -1, -2)
    yield "transpose.hc", lambda: one((1, 32, 32, 64)), lambda a: ttnn.transpose(a, 1, 2)
    yield "permute", lambda: one((1, 2, 64, 64)), lambda a: ttnn.permute(a, (0, 2, 1, 3))
    yield "concat", two, lambda a, b: ttnn.concat([a, b], dim=-1)
    yield "slice", lambda: one((1, 1, 128, 128)), lambda a: ttnn.slice(a, [0, 0, 32, 32], [1, 1, 96, 96])
    yield "pad", one, lambda a: ttnn.pad(a, [(0, 0), (0, 0), (0, 32), (0, 32)], 0.0)
    yield "repeat", one, lambda a: ttnn.repeat(a, (1, 2, 1, 1))
    yield "untilize", one, ttnn.untilize
    yield "tilize", lambda: one(layout=ROWS), ttnn.tilize
    yield "typecast", one, lambda a: ttnn.typecast(a, ttnn.float32)
    yield "clone", one, ttnn.clone
    yield "where", lambda: [*two(), tensor(memory=m)], ttnn.where
    yield "addcmul", lambda: [*two(), tensor(memory=m)], ttnn.addcmul
    yield "to_memory_config", one, lambda a: ttnn.to_memory_config(a, MEMORY["L1" if m == MEMORY["DRAM"] else "DRAM"])
    yield "add.into", lambda: [*two(), tensor(memory=m)], lambda a, b, out: ttnn.add(a, b, output_tensor=out)
    words = lambda: [tensor((1, 32), ttnn.uint32, ROWS, m), tensor((512, 64), ttnn.bfloat16, ROWS, m)]  # noqa: E731
    yield "embedding", words, lambda a, b: ttnn.embedding(a, b, layout=TILE)
    in_shards = lambda: [tensor((1, 1, 256, 32), memory=sharded())]  # noqa: E731
    yield "interleaved_to_sharded", lambda: one((1, 1, 256, 32)), lambda a: ttnn.interleaved_to_sharded(a, sharded())
    if m == MEMORY["L1"]:
        yield "sharded_to_interleaved", in_shards, lambda a: ttnn.sharded_to_interleaved(a, m)
        yield "relu.sharded", in_shards, ttnn.relu
        yield "add.sharded", lambda: in_shards() + in_shards(), lambda a, b: ttnn.add(a, b, memory_config=sharded())
        yield "reshard", in_shards, lambda a: ttnn.reshard(a, sharded(cores=4))


lines = open(sys.argv[1], "w")
live = [tensor(memory=m) for m in MEMORY.values() for _ in range(50)]  # which nothing uses
for when in ("cold", "warm", "again"):
    for memory, m in MEMORY.items():
        for name, make, op in cases(m):
            tensors = make()
            live.append(tensors[0])  # so that the next ones are at other addresses
            name = f"{when} {memory} {name}"
            mark(name)
            try:
                result = op(*tensors)
            except Exception as e:  # the release has no such operation, or another form of it
                print(json.dumps({"name": name, "error": str(e).splitlines()[0][:120]}), file=lines)
                continue
            mark("after")
            results = result if isinstance(result, (list, tuple)) else [result]
            print(json.dumps({"name": name, "tensors": [t.buffer_address() for t in [*tensors, *results]]}), file=lines)
            del tensors, result, results
for name, shape in ("host", [1, 1, 32, 32]), ("view", [32, 32]):
    mark(name)
    ones = ttnn.ones([1, 1, 32, 32], ttnn.bfloat16, TILE, device)  # the host writes it
    ttnn.from_device(ttnn.reshape(ones, shape))
    print(json.dumps({"name": name, "moved": ones.buffer_address()}), file=lines)
lines.close()
close_device(device)
