"""Has its peak first, and then allocates and frees until its standard input ends.

The checkpoints have the figures of the library's own allocator at the peak and, at the
end, with all buffers of a round.
"""

import sys
import threading

import ttnn
from device import Checkpoints, close_device, open_device


def tensor(device):
    return ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def watch_input():
    """An event that is set when standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    return ended


def main():
    device = open_device()
    check = Checkpoints()
    first = [tensor(device) for _ in range(10)]
    check("peak", device)
    kept = first[:2]  # noqa: F841: stays allocated
    del first
    ended = watch_input()
    while not ended.is_set():
        round = [tensor(device) for _ in range(3)]  # line: round
    check("end", device)
    del round
    close_device(device)


main()
