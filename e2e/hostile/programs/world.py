"""Objects of the library as an attacker can make them up, in memory of its own."""

import ctypes
import os

from tools import *  # noqa: F403

FIELDS = LAYOUT["fields"]
OBJECT = 0x1000  # the size of every made-up object


def word(address):
    return ctypes.c_uint64.from_address(address).value


def put32(address, value):
    ctypes.c_uint32.from_address(address).value = value & 0xFFFFFFFF


class World:
    """Objects that seem to belong to the library that is mapped at an address."""

    def __init__(self, size=64 << 20, at=None):
        # small mappings are read first
        self.next = self.start = memory(size, flags=MAP_PRIVATE | MAP_ANONYMOUS, at=at)
        self.end = self.start + size
        self.bias = 0

    def expect(self):
        """Reserves the place of a library, so that objects can refer to it before it is mapped."""
        self.size = os.path.getsize(CONTEXT["library"])
        self.code = memory(self.size, PROT_NONE)
        self.bias = bias(self.code)

    def attach(self):
        """Maps a library that nobody has seen: it is attached to late, and memory is searched."""
        fd = os.open(library(), os.O_RDONLY)
        memory(self.size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, self.code)
        os.close(fd)

    def object(self, size=OBJECT):
        at = self.next
        self.next += (size + 63) & ~63
        if self.next > self.end:
            raise MemoryError("the made-up world is too small")
        return at

    def field(self, object, name):
        """The address of a field; objects on the way are made."""
        chain = FIELDS[name]
        for offset in chain[:-1]:
            if word(object + offset) == 0:
                put(object + offset, self.object())
            object = word(object + offset)
        return object + chain[-1]

    def device(self, chip):
        device = self.object()
        put(device, self.bias + LAYOUT["device_vtable"])
        put32(self.field(device, "Device.id_"), chip)
        return device

    def vector(self, address, begin, size):
        put(address, begin, begin + size)

    def mesh(self, chips, allocators=()):
        mesh = self.object()
        put(mesh, self.bias + LAYOUT["mesh_vtable"])
        stride = LAYOUT["mesh_stride"]
        entries = self.object(stride * len(chips) + 16)
        for i, chip in enumerate(chips):
            put(entries + i * stride, self.device(chip))
            if LAYOUT["mesh_local"] >= 0:
                ctypes.c_uint8.from_address(entries + i * stride + LAYOUT["mesh_local"]).value = 1
        self.vector(self.field(mesh, "MeshDevice.devices"), entries, stride * len(chips))
        if allocators:
            self.track(mesh, allocators)
        return mesh

    def track(self, mesh, allocators):
        """Gives a mesh its allocators."""
        tracker, manager = self.object(), self.object()
        put(self.field(mesh, "MeshDevice.sub_device_manager_tracker_"), tracker)
        put(tracker + FIELDS["SubDeviceManagerTracker.default_sub_device_manager_"][0], manager)
        put(tracker + FIELDS["SubDeviceManagerTracker.active_sub_device_manager_"][0], manager)
        list_ = self.object(8 * len(allocators))
        put(list_, *allocators)
        self.vector(manager + FIELDS["SubDeviceManager.sub_device_allocators_"][0], list_, 8 * len(allocators))

    def bank(self, banks=12, bytes_per_bank=1 << 30):
        manager = self.object()
        put32(manager + FIELDS["BankManager.num_banks_"][-1], banks)
        put32(manager + FIELDS["BankManager.alignment_bytes_"][-1], 32)
        size = self.field(manager, "BankManager.bank_size")
        put(size, bytes_per_bank)
        list_ = size - FIELDS["BankManager.bank_size"][-1]
        put(list_, self.bias + LAYOUT["free_list"]["Vtable"])
        return manager, list_

    def allocator(self, pointers=(), bank=None, claimed=None, buckets=None):
        """An allocator whose set of buffers has these pointers, or claims to have more."""
        allocator = self.object()
        manager = bank or self.bank()[0]
        for offset in LAYOUT["managers"]:
            if offset >= 0:
                put(allocator + offset, manager)
        at = allocator + FIELDS["Allocator.allocated_buffers_"][0]
        count = claimed or max(2, len(pointers) + 1)
        buckets = buckets or self.object(8 * count)
        size = claimed or len(pointers)
        # one bucket for each pointer: a list in which each leads to the next
        put(at, buckets, count, 0, size, 0x3F800000, size)
        before = at + 0x10
        by_bucket = {}
        for p in pointers:
            by_bucket.setdefault(p % count, []).append(p)
        for bucket, values in by_bucket.items():
            put(buckets + 8 * bucket, before)
            for p in values:
                node = self.object(16)
                put(node, 0, p)
                put(before, node)
                before = node
        return allocator

    def buffer(self, device, allocator, size=2048, kind=0, id=1, address=0x10000, status=1):
        buffer = self.object()
        put(self.field(buffer, "device_"), device)
        put(self.field(buffer, "allocator_"), allocator)
        put(self.field(buffer, "size_"), size)
        put(self.field(buffer, "page_size_"), 2048)
        put(self.field(buffer, "address_"), address)
        put(self.field(buffer, "unique_id_"), id)
        put32(self.field(buffer, "buffer_type_"), kind)
        ctypes.c_uint8.from_address(self.field(buffer, "owns_data_")).value = 1
        ctypes.c_uint8.from_address(self.field(buffer, "allocation_status_")).value = status
        return buffer
