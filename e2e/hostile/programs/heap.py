"""Attacks by what is read from a process's memory after an attach: heap.py NAME.

Each makes up objects and then maps a library that nobody has seen, so that it is attached to
late and searched for objects that were there before.
"""

import ctypes

from world import *  # noqa: F403

def many_allocators():
    """N devices, each of which has the same N allocators, which have the same regions."""
    w = World()
    w.expect()
    count = 250
    allocators = [w.allocator([w.buffer(0, 0)]) for _ in range(count)]
    first = w.mesh([0], allocators)
    for _ in range(count * 8):
        ctypes.memmove(w.object(64), first, 64)
    w.attach()
    forever()


# more than ttmem believes, and as much as it does
CLAIMS = 1 << 24, 1 << 21


def huge_set():
    """Sets of buffers that claim millions of elements, in memory that costs nothing."""
    w = World()
    w.expect()
    buckets = memory(8 << 24)
    allocators = [w.allocator(claimed=CLAIMS[i % 2] - i, buckets=buckets) for i in range(64)]
    for _ in range(20):
        w.mesh([0], allocators)
    w.attach()
    forever()


def full_set():
    """Sets whose millions of buckets all lead to one node."""
    w = World()
    w.expect()
    buckets = memory(8 << 24)
    node = w.object(16)
    put(node, node, 8)
    page = (ctypes.c_uint64 * (1 << 20))(*([node] * (1 << 20)))
    for i in range(16):
        ctypes.memmove(buckets + (i << 23), page, 8 << 20)
    for i in range(8):
        w.mesh([0], [w.allocator(claimed=CLAIMS[i % 2] - i, buckets=buckets)])
    w.attach()
    forever()


def huge_free_list():
    """Free lists that claim millions of blocks, for sharded buffers."""
    w = World()
    w.expect()
    blocks = memory(8 << 24)
    list_fields = LAYOUT["free_list"]
    for i in range(16):
        manager, list_ = w.bank()
        for name in ("Addresses", "Sizes"):
            w.vector(list_ + list_fields[name], blocks, 8 * CLAIMS[i % 2])
        for flag in list_fields["Flags"]:
            w.vector(list_ + flag, blocks, CLAIMS[i % 2])
        mesh = w.mesh([0])
        b = w.buffer(mesh, 0, kind=1, id=i + 1)
        put32(w.field(b, "buffer_layout_"), 2)
        allocator = w.allocator([b], bank=manager)
        put(w.field(b, "allocator_"), allocator)
        w.track(mesh, [allocator])
    w.attach()
    forever()


def many_meshes():
    """A memory full of what looks like devices."""
    w = World(256 << 20)
    w.expect()
    vtable = (ctypes.c_uint64 * (1 << 21))(*([w.bias + LAYOUT["mesh_vtable"]] * (1 << 21)))
    for at in range(w.start, w.end, 16 << 20):
        ctypes.memmove(at, vtable, 16 << 20)
    w.attach()
    forever()


def many_chips():
    """Meshes of 4096 chips each, all different devices."""
    w = World(512 << 20)
    w.expect()
    for i in range(8):
        w.mesh(range(4000), [w.allocator()])
    w.attach()
    forever()


def changing():
    """Objects that change all the time while they are read."""
    w = World()
    w.expect()
    buffers = [w.buffer(0, 0, id=i) for i in range(200)]
    allocator = w.allocator(buffers)
    w.mesh([0], [allocator])
    w.attach()
    at = allocator + FIELDS["Allocator.allocated_buffers_"][0]
    attacking()
    while True:
        for n in (2, 1000, 1 << 24, 0, 201):
            put(at + 8, n)
            put(at + 0x18, n)


def endless():
    """Memory without end, all of it in use and alike."""
    w = World(8 << 20)
    w.expect()
    at = memory(1 << 40)
    page = b"\x7f" * PAGE
    for i in range(50000 if LONG else 20000):
        ctypes.memmove(at + i * (1 << 21), page, PAGE)
    w.mesh([0], [w.allocator()])
    w.attach()
    forever()


run(globals())
