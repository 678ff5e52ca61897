"""Runs a program on another copy of the tt-metal library: shipped.py LIBRARY HOW [PROGRAM [ARG]…]

The library is opened before ttnn is imported, which then takes that one: its SONAME is the same. HOW is file,
memfd (an anonymous file), deleted (unlinked once it is open) or alone: without ttnn, until standard input ends.
"""

import ctypes
import glob
import importlib.util
import os
import runpy
import shutil
import sys

library, how, *rest = sys.argv[1:]
path = library
if how == "memfd":
    fd = os.memfd_create("tt-metal")
    with open(library, "rb") as source, open(fd, "wb", closefd=False) as copy:
        shutil.copyfileobj(source, copy)
    path = f"/proc/self/fd/{fd}"
beside = importlib.util.find_spec("ttnn").submodule_search_locations[0]
for needed in glob.glob(beside + ".libs/*") + glob.glob(beside + "/build/lib/libt*.so*"):  # the copy would not find them
    if "tt_metal" not in needed:
        ctypes.CDLL(needed)
ctypes.CDLL(path, os.RTLD_GLOBAL | os.RTLD_LAZY)
if how == "memfd":
    os.close(fd)
elif how == "deleted":
    os.unlink(library)
if how == "alone":
    print("holding", flush=True)
    sys.stdin.read()
else:
    sys.argv = rest
    sys.path.insert(0, os.path.dirname(rest[0]))
    runpy.run_path(rest[0], run_name="__main__")
