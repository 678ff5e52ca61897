"""Has its peak first, and then allocates and frees for long: peak_first.py ROUNDS.

The checkpoints have what the library's own allocator counts at the peak and, at the
end, with all that a round has.
"""

import sys

import ttnn
from device import Checkpoints, close_device, open_device


def tensor(device):
    return ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def main():
    device = open_device()
    check = Checkpoints()
    first = [tensor(device) for _ in range(10)]
    check("peak", device)
    kept = first[:2]  # noqa: F841: stays allocated
    del first
    for _ in range(int(sys.argv[1])):
        round = [tensor(device) for _ in range(3)]  # line: round
    check("end", device)
    del round
    close_device(device)


main()
