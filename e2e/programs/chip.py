"""Moves data on a chip that executes, and compares every result with what it must be.

Arguments are steps: their results stay until the end. "wait" prints "waiting" and reads a line.
"""

import sys

import numpy as np
import ttnn
from device import Checkpoints, close_device, open_device

TILE = ttnn.TILE_LAYOUT
ROWS = ttnn.ROW_MAJOR_LAYOUT
DRAM = ttnn.DRAM_MEMORY_CONFIG
L1 = ttnn.L1_MEMORY_CONFIG

# bfloat16 has all integers up to 256
VALUES = np.arange(32 * 32, dtype=np.float32).reshape(32, 32) % 128


def on_host(layout, values=VALUES):
    tensor = ttnn.Tensor(values.flatten().tolist(), list(values.shape), ttnn.bfloat16, ROWS)
    return tensor if layout == ROWS else tensor.to(layout)


def contents(tensor):
    tensor = ttnn.from_device(tensor)
    return np.array((tensor if tensor.layout == ROWS else tensor.to(ROWS)).to_list())


def one_shard():
    """All of a tile on the first core."""
    first = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))})
    spec = ttnn.ShardSpec(first, [32, 32], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)


def main():
    device = open_device(l1_small_size=0)
    check = Checkpoints()
    check("opened", device)
    tiles = ttnn.to_device(on_host(TILE), device)
    rows = ttnn.to_device(on_host(ROWS), device)
    identity = ttnn.to_device(on_host(TILE, np.identity(32, dtype=np.float32)), device)
    check("copied from the host", device)

    steps = {
        "clone": lambda: (ttnn.clone(tiles), VALUES),
        "to L1": lambda: (ttnn.to_memory_config(tiles, L1), VALUES),
        "from L1": lambda: (ttnn.to_memory_config(ttnn.to_memory_config(tiles, L1), DRAM), VALUES),
        "clone in L1": lambda: (ttnn.clone(tiles, memory_config=L1), VALUES),
        "to a shard": lambda: (ttnn.to_memory_config(tiles, one_shard()), VALUES),
        "concat": lambda: (ttnn.concat([tiles, tiles], dim=0), np.concatenate([VALUES, VALUES])),
        "clone of rows": lambda: (ttnn.clone(rows), VALUES),
        "slice of rows": lambda: (ttnn.slice(rows, [8, 0], [24, 32]), VALUES[8:24]),
        "tilize": lambda: (ttnn.tilize(rows), VALUES),
        "untilize": lambda: (ttnn.untilize(tiles), VALUES),
        "matmul": lambda: (ttnn.matmul(tiles, identity), VALUES),
        "transpose": lambda: (ttnn.transpose(tiles, 0, 1), VALUES.T),
    }
    kept, wrong = [], 0
    for step in sys.argv[1:]:
        if step == "wait":
            print("waiting", flush=True)
            sys.stdin.readline()
            continue
        result, expected = steps[step]()
        kept.append(result)
        check(step, device)
        if not np.array_equal(contents(result), expected):
            print(f"wrong contents: {step}", file=sys.stderr)
            wrong += 1
    kept.clear()
    check("dropped", device)
    close_device(device)
    sys.exit(wrong)


main()
