"""Work that has nothing to do with tt-metal: others.py TURNS ROUNDS WHAT.

It runs rounds, like loop.py, and prints the CPU time of each, in ns, including child
processes and the kernel on their behalf.
"""

import mmap
import os
import resource
import sys
import time

from rounds import play


def spawn(n):
    """fork and exec, as a shell does it."""
    for _ in range(n):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def map_code(n):
    """What a dynamic linker does with a library."""
    with open(sys.executable, "rb") as file:
        for _ in range(n):
            mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()


def allocate(n):
    """malloc and free: of memory that is at hand, and of some that is mapped for it."""
    for _ in range(n):
        bytearray(1 << 10)
        bytearray(1 << 20)


def compute(n):
    """Nothing but arithmetic."""
    x = 1
    for _ in range(n):
        x = x * 1103515245 + 12345 & 0x7FFFFFFF


work = globals()[sys.argv[3]]


def processor_time():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + int((children.ru_utime + children.ru_stime) * 1e9)


def turn(n):
    start = processor_time()
    work(n)
    return processor_time() - start


play(turn, int(sys.argv[1]), int(sys.argv[2]))
