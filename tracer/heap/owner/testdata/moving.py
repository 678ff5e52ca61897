"""moving.py PAUSE moves Targets between two dicts, as fast as it can or with pauses."""
import gc
import json
import sys


class Target:
    __slots__ = ("label",)

    def __init__(self, label):
        self.label = label


labels = [str(n) for n in range(1000)]
left = {k: Target(k) for k in labels}
right = {}
pause = int(sys.argv[1])


def move():
    for k in labels[::2]:
        of, to = (left, right) if k in left else (right, left)
        moving = of.pop(k)
        to[k] = moving
        del moving
        if pause:
            sum(range(pause))


print(json.dumps({id(o): o.label for o in gc.get_objects() if type(o) is Target}), flush=True)
while True:
    move()
