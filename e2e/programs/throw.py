"""Throws exceptions that are not tt-metal's, in a process that uses it: throw.py TURNS ROUNDS WHAT LIBRARY.

It runs rounds, like loop.py, and prints the CPU time of each, in ns.
"""

import ctypes
import sys
import time

import ttnn
from device import close_device, open_device
from rounds import play

library = ctypes.CDLL(sys.argv[4])
device = open_device()
shape = ttnn.empty([1, 1, 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device).shape


def out_of_range(n):
    library.throw_often(ctypes.c_long(n), 0)


def runtime_error(n):
    library.throw_often(ctypes.c_long(n), 1)


def iterate(n):
    """The end of each iteration is an exception in ttnn's bindings."""
    for _ in range(n):
        for _ in shape:
            pass


work = globals()[sys.argv[3]]


def turn(n):
    start = time.process_time_ns()
    work(n)
    return time.process_time_ns() - start


play(turn, int(sys.argv[1]), int(sys.argv[2]))
close_device(device)
