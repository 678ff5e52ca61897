"""Shared by the programs that attack: what they are told, and what every user can do."""

import ctypes
import itertools
import json
import os
import shutil
import struct
import sys
import time

CONTEXT = json.load(open(os.environ["HOSTILE"]))
LAYOUT = CONTEXT["layout"]
HOME = CONTEXT["dir"]
LONG = CONTEXT["long"]
FORGED = CONTEXT["forged"]

PAGE = 4096
PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE, MAP_POPULATE = 1, 2, 16, 32, 0x4000, 0x8000

# What a name may do to a terminal, and to a list of lines.
HOSTILE_NAME = "\x1b[31mred\x1b]0;title\x07\r\n" + FORGED + "\n\u202eoverride\u2066\x9b31m\u2028\x7f\b\u200f"

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def attacking():
    """Says that the attack has begun."""
    print("attacking", flush=True)


def forever():
    attacking()
    while True:
        time.sleep(1)


def memory(size, prot=PROT_READ | PROT_WRITE, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd=-1, at=None, offset=0):
    """The address of new memory."""
    if at is not None:
        flags |= MAP_FIXED
    address = libc.mmap(at, size, prot, flags, fd, offset)
    if address in (None, 2**64 - 1):
        raise OSError(ctypes.get_errno(), "mmap: " + os.strerror(ctypes.get_errno()))
    return address


def map_code(path):
    """Maps a file as code, as a whole."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return memory(os.fstat(fd).st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
    finally:
        os.close(fd)


def put(address, *words):
    """Writes words of 8 bytes."""
    ctypes.memmove(address, struct.pack(f"<{len(words)}Q", *(w & (2**64 - 1) for w in words)), 8 * len(words))


numbers = itertools.count()


def library(name=None):
    """A copy of the tt-metal library that nobody has seen before."""
    path = name or f"{HOME}/library{next(numbers)}-{os.getpid()}.so"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copyfile(CONTEXT["library"], path)
    return path


def bias(start):
    """The load bias of a library that is mapped as a whole at an address."""
    return start + LAYOUT["bias"]


def run(functions):
    """Runs the attack that the command line names."""
    functions[sys.argv[1]](*sys.argv[2:])
