"""ttmem shows what uses the memory of Tenstorrent devices. Its recordings as data frames:

    import ttmem

    run = ttmem.open("model.ttmem")
    run.peaks()                    # the peak of each region
    run.leaks()                    # call sites that leak
    run.operations()               # the L1 of each operation
    run.at("2.5s").buffers         # what was live 2.5 s after the first event

The program ttmem reads the file; columns are the fields of its JSON documents (docs/schema.json).

A program that is traced names its moments:

    ttmem.mark("warm")

A program measures itself, if it may be traced:

    with ttmem.step("forward") as s:
        y = model(x)
    print(s.peaks["DRAM"], s.left)
    ttmem.max_memory_allocated()
"""

from __future__ import annotations

import os

from ttmem.live import Failure, Left, Line, Step, max_memory_allocated, memory_allocated, reset_peak_memory_stats, step
from ttmem.marking import mark
from ttmem.recording import Error, Recording, State

__all__ = [
    "Error", "Failure", "Left", "Line", "Recording", "State", "Step",
    "mark", "max_memory_allocated", "memory_allocated", "open", "reset_peak_memory_stats", "step",
]
__version__ = "0.1.0"  # the release in CHANGELOG.md


def open(
    file: str | os.PathLike[str], command: str | os.PathLike[str] = "ttmem", *, units: bool = False, callers: bool = False
) -> Recording:
    """The recording in a file, read by the program `command`. With units=True, frames have seconds and MiB beside ns
    and bytes; with callers=True, names have the callers of their lines."""
    return Recording(file, command, units=units, callers=callers)
