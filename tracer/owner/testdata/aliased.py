"""A hundred thousand lists that say that they have the same million items."""
import ctypes
import sys

items = [None] * 1_000_000
lists = [[0] for _ in range(100_000)]
head = ctypes.c_uint64 * 4  # references, type, length, items
length, at = head.from_address(id(items))[2:4]
for one in lists:
    words = head.from_address(id(one))
    words[2], words[3] = length, at
print("{}", flush=True)
sys.stdin.readline()
