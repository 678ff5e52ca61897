"""Calls of the library that never happened: probed instructions, hit with made-up registers."""

import ctypes
import os
import time

from world import *  # noqa: F403

hits = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hits.so"))


class Forger:
    """Calls probed instructions of a library, which has been attached to."""

    def __init__(self, path=None, fd=None, wait=1.5):
        self.world = World()
        if fd is None:
            fd = os.open(library(path), os.O_RDONLY)
        self.size = os.fstat(fd).st_size
        self.code = memory(self.size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
        self.world.bias = bias(self.code)
        stack = memory(PAGE * 64)
        libc.mprotect(ctypes.c_void_p(stack), PAGE, PROT_NONE)
        self.stack = stack + PAGE + 8  # one push fits, and the next faults
        self.registers = (ctypes.c_uint64 * 12)()
        own = [line for line in open("/proc/self/maps") if "hits.so" in line and "r-xp" in line][0]
        self.own, self.own_size = int(own.split("-")[0], 16), 256  # where made-up stacks lead to
        time.sleep(wait)  # until it is attached to

    def at(self, probe):
        return ctypes.c_void_p(self.code + LAYOUT["probes"][probe])

    def hit(self, probe, *arguments, times=1, vary=(), slide=(), depth=1):
        """Hits a probe; vary are addresses of words and their steps, and slide are arguments and theirs."""
        hits.setup()
        registers = (ctypes.c_uint64 * 12)(*(a & (2**64 - 1) for a in arguments))
        vary = [*vary, *((ctypes.addressof(registers) + 8 * i, step) for i, step in slide)]
        words = (ctypes.c_uint64 * (len(vary) or 1))(*(a for a, _ in vary))
        steps = (ctypes.c_uint64 * (len(vary) or 1))(*(s & (2**64 - 1) for _, s in vary))
        hits.flood(self.at(probe), registers, ctypes.c_void_p(self.stack), ctypes.c_long(times), ctypes.c_long(len(vary)),
                   words, steps, ctypes.c_uint64(self.own), ctypes.c_uint64(self.own_size), ctypes.c_long(depth))

    def device(self, chips=(0,)):
        w = self.world
        allocator = w.allocator()
        return w.mesh(list(chips), [allocator]), allocator

    def buffers(self, mesh, allocator, times=1 << 20):
        """Allocates ever new Buffers: a pointer slides over a file of these, which is mapped again and again."""
        template = self.world.buffer(mesh, allocator)
        id = self.world.field(template, "unique_id_") - template
        stride, count = 512, 4096
        fd = os.memfd_create("buffers")
        os.ftruncate(fd, stride * count)
        region = memory(stride * count * (times // count), PROT_NONE)
        for at in range(region, region + stride * times, stride * count):
            memory(stride * count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, at)  # else no probe can read it
        ctypes.memmove(region, ctypes.string_at(template, stride) * count, stride * count)
        for i in range(times // count):
            for k in range(count):
                put(region + k * stride + id, i * count + k + 10)
            self.hit("buffer_allocated", 0, region + i * stride * count, times=count, slide=[(1, stride)])

    def program(self, id=5):
        """A program, also as a pointer to its implementation; id's address is returned, too."""
        w = self.world
        program, impl = w.object(), w.object()
        put(program, *([impl] * 8))
        put(w.field(impl, "ProgramImpl.id"), id)
        return program, w.field(impl, "ProgramImpl.id")
