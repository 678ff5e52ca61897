"""Moments of this process that have a name for whoever traces it."""

from __future__ import annotations

import ctypes
import os
from typing import Any

LONGEST = 127  # bytes: MAX_MARK_NAME of ttmem's kernel side, without the NUL


def _load() -> Any:
    """The function in which ttmem places a probe, which does nothing; None on a machine that cannot load it."""
    try:
        function = ctypes.PyDLL(os.path.join(os.path.dirname(__file__), "libttmem_mark.so")).ttmem_mark
    except OSError:
        return None
    function.argtypes, function.restype = [ctypes.c_char_p], None
    return function


_function = _load()


def mark(name: str) -> None:
    """Names the current moment in the events of every ttmem that traces this process: --from, --to and --at
    take the name. Without a tracer it does nothing.

    The name is a str; what is beyond 127 bytes of UTF-8 is cut off. A name that is empty, or has a NUL, is
    a ValueError."""
    text = name.encode()
    if not text or b"\0" in text:
        raise ValueError("a mark needs a name, without NUL")
    if len(text) > LONGEST:
        text = text[:LONGEST].decode(errors="ignore").encode()
    if _function:
        _function(text)
