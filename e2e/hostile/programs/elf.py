"""Attacks by ELF files, mapped in a process whose code is read for stacks: elf.py NAME."""

import os
import random
import struct
import time

from tools import *  # noqa: F403

TEXT = 0x1000


def elf(path, sections=(), segments=None, shnum=None, phnum=None, shoff=None, size=None):
    """Writes an ELF file: sections are (name, type, address, offset, size, entry size, link, bytes or None)."""
    names = b"\0" + b"".join(s[0].encode() + b"\0" for s in sections) + b".shstrtab\0"
    if segments is None:
        segments = [(1, 5, 0, 0, 1 << 28, 1 << 28)]
    at_names, headers = 0x400, 0x800
    rows = [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for s in sections:
        name = names.index(b"\0" + s[0].encode() + b"\0") + 1
        rows.append(struct.pack("<IIQQQQIIQQ", name, s[1], 2, s[2], s[3], s[4], s[6], 0, 8, s[5]))
    rows.append(struct.pack("<IIQQQQIIQQ", names.index(b".shstrtab"), 3, 0, 0, at_names, len(names), 0, 0, 1, 0))
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, headers if shoff is None else shoff, 0, 64, 56,
        len(segments) if phnum is None else phnum, 64, len(rows) if shnum is None else shnum, len(rows) - 1)
    with open(path, "wb") as f:
        f.write(head + b"".join(struct.pack("<IIQQQQQQ", t, fl, o, v, v, fs, ms, 4096) for t, fl, o, v, fs, ms in segments))
        f.seek(at_names)
        f.write(names)
        f.seek(headers)
        f.write(b"".join(rows))
        for s in sections:
            if s[7]:
                f.seek(s[3])
                f.write(s[7])
        if size:
            f.truncate(size)
    return path


def map_all(paths):
    """Maps files in a process that is traced, and keeps them mapped."""
    map_code(library())
    time.sleep(0.5)
    attacking()
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        memory(PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
        os.close(fd)
        time.sleep(0.01)
    while True:
        time.sleep(1)


def sparse_frames():
    """.eh_frame sections of 250 MiB that cost the attacker nothing."""
    size = 250 << 20
    map_all([elf(f"{HOME}/sparse{i}", [(".eh_frame", 1, 0x10000, 0x10000, size, 0, 0, None)], size=size + (1 << 20)) for i in range(6)])


def dense_frames():
    """An .eh_frame of millions of small functions."""
    cie = struct.pack("<IIB", 20, 0, 1) + b"zR\0\1\x78\x10\1\x03" + bytes([12, 7, 8, 0x90, 1]) + bytes(0)
    cie = struct.pack("<I", len(cie) - 4) + cie[4:]
    frames, at, code = bytearray(cie), len(cie), 0x10000000
    functions = 3000000 if LONG else 1000000
    one = struct.Struct("<IIIIBBBB")
    for i in range(functions):
        frames += one.pack(16, at + 4, code + 16 * i, 16, 0, 0x41, 14, 16)
        at += 20
    path = elf(f"{HOME}/dense", [(".eh_frame", 1, 0x10000, 0x10000, len(frames), 0, 0, bytes(frames))],
               segments=[(1, 5, 0, 0x10000000, 1 << 28, 1 << 28), (1, 4, 0, 0, 1 << 28, 1 << 28)], size=len(frames) + (1 << 20))
    map_all([path])


def huge_tables():
    """Tables of symbols, strings and notes that claim gigabytes."""
    paths = []
    for i in range(8):
        size = 1 << 38
        paths.append(elf(f"{HOME}/tables{i}", [
            (".symtab", 2, 0, 0x10000, 1 << 37, 24, 3, None), (".dynsym", 11, 0, 0x10000, 1 << 36, 24, 3, None),
            (".strtab", 3, 0, 0x20000, 1 << 37, 0, 0, None), (".note.gnu.build-id", 7, 0, 0x10000, 1 << 36, 0, 0, None),
            (".eh_frame", 1, 0x10000, 0x10000, 1 << 36, 0, 0, None), (".gnu.hash", 0x6FFFFFF6, 0, 0x10000, 1 << 36, 0, 2, None),
        ], segments=[(1, 5, 0, 0, 1 << 37, 1 << 37), (4, 4, 0x10000, 0x10000, 1 << 36, 1 << 36), (0x6474E550, 4, 0x10000, 0x10000, 1 << 36, 1 << 36), (2, 6, 0x10000, 0x10000, 1 << 36, 1 << 36)], size=size))
    map_all(paths)


def headers():
    """Headers that contradict themselves."""
    paths = []
    for i, (shnum, phnum, shoff) in enumerate([(65535, 1, None), (1, 65535, None), (0, 1, None), (65535, 65535, 2**64 - 64), (3, 1, 2**63), (65279, 1, 0), (0xFFFF, 0xFFFF, 64)]):
        paths.append(elf(f"{HOME}/headers{i}", [(".eh_frame", 1, 0x10000, 0x10000, 4096, 0, 0, b"\xff" * 4096)], shnum=shnum, phnum=phnum, shoff=shoff, size=1 << 34))
    map_all(paths)


def damaged():
    """Copies of real libraries with damage in their headers and tables."""
    dice = random.Random(11)
    text = open("/usr/bin/python3", "rb").read()
    small = open("/bin/true", "rb").read()
    paths = []
    for i in range(1000 if LONG else 100):
        b = bytearray(text if i % 20 == 0 else small)
        for _ in range(dice.randrange(1, 20)):
            where = dice.choice([range(24, 1024), range(len(b) - 4096, len(b)), range(len(b))])
            b[dice.choice(where)] = dice.choice([0, 0xFF, 0x7F, dice.randrange(256)])
        if i % 7 == 0:
            del b[dice.randrange(64, len(b)) :]
        path = f"{HOME}/damaged{i}"
        with open(path, "wb") as f:
            f.write(b)
        paths.append(path)
    map_all(paths)


def damaged_library():
    """Copies of the tt-metal library with damage in code and tables."""
    dice = random.Random(12)
    map_code(library())
    attacking()
    for i in range(40 if LONG else 4):
        path = library()
        with open(path, "r+b") as f:
            for _ in range(200):
                f.seek(dice.randrange(64, os.path.getsize(path)))
                f.write(bytes([dice.randrange(256)]) * dice.choice([1, 8, 4096]))
        map_code(path)
        time.sleep(0.1)
    forever()


run(globals())
