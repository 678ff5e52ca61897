"""Attacks by what probes read: calls of the library that never happened. probes.py NAME."""

import ctypes
import os
import threading
import time

from forger import *  # noqa: F403

def again(do):
    attacking()
    while True:
        do()


def unreadable():
    """A buffer, a program, a device that is not there: losses."""
    f = Forger()
    again(lambda: (f.hit("buffer_allocated", 8, 8), f.hit("program_compiled", 8, 8), f.hit("device_ready", 8, 8, 8), time.sleep(0.05)))


def unknown_types():
    """Types, layouts and states that the library does not have."""
    f = Forger()
    mesh, allocator = f.device()
    buffers = [f.world.buffer(mesh, allocator, kind=k, id=100 + k) for k in (5, 6, 77, 0xFFFFFFFF)]
    again(lambda: ([f.hit("buffer_allocated", 0, b) for b in buffers], time.sleep(0.02)))


def absurd_sizes():
    """Sizes, addresses and capacities near the end of what a number can be."""
    f = Forger()
    w = f.world
    allocator = w.allocator(bank=w.bank(0xFFFF, 2**64 - 1)[0])
    mesh = w.mesh([0], [allocator])
    buffers = [w.buffer(mesh, allocator, size=s, address=a, id=i) for i, (s, a) in enumerate([(2**64 - 1, 0), (2**63, 2**64 - 2048), (1 << 62, 1 << 63), (0, 0)])]
    again(lambda: ([f.hit("buffer_allocated", 0, b) for b in buffers], time.sleep(0.02)))


def alloc_flood():
    """Allocations as fast as they can be made up."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    id = f.world.field(b, "unique_id_")
    again(lambda: f.hit("buffer_allocated", 0, b, times=100000, vary=[(id, 1)]))


def buffer_flood():
    """More live Buffers than a user may have."""
    f = Forger()
    attacking()
    f.buffers(*f.device(), times=320 * 4096)
    forever()


def program_ids():
    """Ever new programs at one address, with circular buffers."""
    f = Forger()
    w = f.world
    mesh, _ = f.device()
    program, ranges, list_ = w.object(), w.object(64), w.object()
    put(list_, 0, 0, 7, 7)
    put(ranges, list_, list_ + 32)
    id = w.field(program, "ProgramImpl.id")
    attacking()
    while True:
        put(id, next(numbers))
        f.hit("program_cbs", program, mesh)
        f.hit("cb_allocate", 0, ranges, 0, 2048, 0, mesh)


def wide_buffers():
    """Circular buffers on ever other cores, as many as a chip might have, at ever other addresses."""
    f = Forger()
    w = f.world
    mesh, _ = f.device()
    program, ranges, list_ = w.object(), w.object(64), w.object(32 * 32)
    put(ranges, list_, list_ + 32 * 32)
    put(w.field(program, "ProgramImpl.id"), 5)
    attacking()
    f.hit("program_cbs", program, mesh)
    for n in numbers:
        for i in range(32):
            put(list_ + 32 * i, i % 8 * 8, n % 63, i % 8 * 8 + 7, n % 63 + 1 + i % 7)
        f.hit("cb_allocate", 0, ranges, 0, 2048, 0, mesh, times=50)


def claimed_chips():
    """All chips that can be named."""
    f = Forger()
    w = f.world
    mesh, allocator = f.device(range(128))
    b = w.buffer(mesh, allocator)
    entries = word(w.field(mesh, "MeshDevice.devices"))
    ids = [w.field(word(entries + i * LAYOUT["mesh_stride"]), "Device.id_") for i in range(128)]
    vary = [(id, 128) for id in ids] + [(w.field(b, "allocator_"), 8), (w.field(b, "unique_id_"), 1)]
    attacking()
    f.hit("buffer_allocated", 0, b, times=31, vary=vary)
    forever()


def allocator_flood():
    """More allocators than the kernel's table holds."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    again(lambda: f.hit("buffer_allocated", 0, b, times=70000, vary=[(f.world.field(b, "allocator_"), 64)]))


def program_flood():
    """More programs than the kernel's table holds."""
    f = Forger()
    mesh, _ = f.device()
    program = f.world.object()
    again(lambda: program_steps(f, program, mesh))


def program_steps(f, program, mesh):
    start = f.world.start
    for at in range(start, start + (32 << 20), 8):
        f.hit("program_compiled", at, mesh)
        f.hit("program_binaries", at, mesh)


def stack_flood():
    """More different stacks than the table holds."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    again(lambda: f.hit("buffer_allocated", 0, b, times=100000, depth=60))


def chips():
    """Chips that do not exist, by the thousand."""
    f = Forger()
    w = f.world
    mesh, allocator = f.device(range(128))
    b = w.buffer(mesh, allocator)
    entries = word(w.field(mesh, "MeshDevice.devices"))
    ids = [w.field(word(entries + i * LAYOUT["mesh_stride"]), "Device.id_") for i in range(128)]
    vary = [(id, 1000003) for id in ids] + [(w.field(b, "allocator_"), 8)]
    attacking()
    for _ in range(2000):
        f.hit("buffer_allocated", 0, b, times=10, vary=vary)
    forever()


def cores():
    """Circular buffers on rectangles of four billion cores."""
    f = Forger()
    w = f.world
    mesh, _ = f.device()
    program = w.object()
    ranges, list_ = w.object(64), w.object(32 * 1024)
    for i in range(1024):
        put(list_ + 32 * i, 0, 0, 65535, 65535 - i % 7)
    put(ranges, list_, list_ + 32 * 1024)
    id = w.field(program, "ProgramImpl.id")
    attacking()
    while True:
        put(id, next(numbers))
        f.hit("program_cbs", program, mesh)
        f.hit("cb_allocate", 0, ranges, 0, 1 << 40, 0, mesh)
        time.sleep(0.005)


def thrown():
    """Failures with a hostile message, and with what seems to be on the stack."""
    f = Forger()
    w = f.world
    exception, text = w.object(), w.object()
    message = ("Out of Memory: Not enough space to allocate 99999999999999999999 B DRAM buffer across 4294967295 banks, "
               "where each bank needs to store 18446744073709551615 B " + HOSTILE_NAME).encode()
    ctypes.memmove(text, message, len(message))
    put(exception, text, text)
    stack = f.stack
    mesh, allocator = f.device()
    b = w.buffer(mesh, allocator, status=0)
    attacking()
    while True:
        for offset in range(0, f.size, 4096):
            put(stack, f.code + offset, *([b] * 30))
            f.hit("throw", exception, text, depth=0)


def forged_identity():
    """Events in a forked child at the addresses of its parent's objects."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    for _ in range(8):
        if os.fork() == 0:
            break
    id = f.world.field(b, "unique_id_")
    again(lambda: (f.hit("buffer_allocated", 0, b, times=50, vary=[(id, 1)]), f.hit("allocator_clear", allocator), time.sleep(0.05)))


def thread_flood():
    """Hits by thousands of threads, each of which is named."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    name = [HOSTILE_NAME.encode()[i : i + 15] for i in range(20)]

    def one(i):
        libc.prctl(15, name[i % len(name)])
        f.hit("buffer_allocated", 0, b)

    attacking()
    for i in range(100000):
        t = threading.Thread(target=one, args=(i,))
        t.start()
        t.join()


run(globals())
