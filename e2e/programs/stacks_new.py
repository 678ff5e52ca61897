"""Allocates and frees one buffer, from another call path every time:
stacks_new.py PAIRS [ROUNDS].

It goes three levels down, each in one of 32 ways: 32,768 paths, all with different
lines of Python, and with different native calls, because each operator is a C
function of its own in the interpreter. No path comes twice before all have come, and
neighbours have little in common.
"""

import sys
import time

import ttnn
from device import close_device, open_device
from rounds import play

pairs = int(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 0
device = open_device()
empty, deallocate = ttnn.empty, ttnn.deallocate
arguments = ([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)

LEVELS = 3
BINARY = {
    "add": "+", "sub": "-", "mul": "*", "matmul": "@", "truediv": "/", "floordiv": "//", "mod": "%",
    "pow": "**", "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
# what is done to x, and the method that it ends up in
STATEMENTS = {f"__{name}__": f"x {sign} 0" for name, sign in BINARY.items()}
STATEMENTS |= {f"__i{name}__": f"x {sign}= 0" for name, sign in BINARY.items()}
STATEMENTS |= {"__neg__": "-x", "__pos__": "+x", "__invert__": "~x"}
STATEMENTS |= {"__abs__": "abs(x)", "__getitem__": "x[0]", "__call__": "x()"}


class Level:
    """Whatever is done to it goes on one level deeper, in the way that path says."""

    def __init__(self, levels):
        self.deeper = Level(levels - 1) if levels > 1 else None

    def descend(self, *_):
        global path
        if self.deeper is None:
            deallocate(empty(*arguments))
            return
        path, way = divmod(path, len(ways))
        ways[way](self.deeper)


source = ""
for name, statement in STATEMENTS.items():
    setattr(Level, name, Level.descend)
    source += f"def way{name}(x):\n    {statement}\n"
functions = {}
exec(compile(source, "ways.py", "exec"), functions)
ways = [functions["way" + name] for name in STATEMENTS]
paths = len(ways) ** LEVELS
entry = Level(LEVELS + 1)
number = path = 0


def turn(n):
    global number, path
    start = time.thread_time_ns()
    for _ in range(n):
        number += 1
        path = number * 12289 % paths  # odd: all paths come before one comes again
        entry.descend()
    return time.thread_time_ns() - start


play(turn, pairs, rounds)
close_device(device)
print("done", flush=True)
