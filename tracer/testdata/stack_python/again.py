"""Calls ttprobe.probe() several times in the same stack.

Argument: the folder that has ttprobe.so. It prints "ready", waits for a line, calls,
prints "done", and waits for the end of its input.
"""

import sys

sys.path.insert(0, sys.argv[1])
import ttprobe

print("ready", flush=True)
sys.stdin.readline()
for _ in range(5):
    ttprobe.probe()
print("done", flush=True)
sys.stdin.read()
