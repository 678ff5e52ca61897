"""Moves targets between two dicts, as fast as it can. The arguments are those of target.py."""
import json
import sys

from target import labels, target, use

use(*sys.argv[1:])
keys = [str(n) for n in range(1000)]
left = {k: target(k) for k in keys}
right = {}


def move():
    for k in keys[::2]:
        of, to = (left, right) if k in left else (right, left)
        moving = of.pop(k)
        to[k] = moving
        del moving


print(json.dumps(labels), flush=True)
while True:
    move()
