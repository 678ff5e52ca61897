"""The device memory of this process, which the program `ttmem steps` measures from outside.

One child of this process serves all that is measured. It starts with the first use, and ends with this process.
"""

import atexit
import gc
import json
import os
import select
import subprocess
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from ttmem.program import find_program
from ttmem.recording import Error

REGIONS = ("DRAM", "L1", "L1_SMALL", "TRACE", "SYSTEM_MEMORY")
TIMEOUT = 120  # seconds; a busy host takes some to begin tracing


def format_size(size):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def lost_events(count):
    return f"{count} {'event' if count == 1 else 'events'} lost"


def leaked(step):
    """What a step left, without what a program always keeps."""
    return [left for left in step["left"] if not left.get("kept")]


class Watcher:
    """`ttmem steps` of this process. An answer that takes longer than timeout seconds is an error. After an error
    it is closed: it might answer something else later."""

    def __init__(self, command="ttmem", timeout=TIMEOUT, no_command="install ttmem", too_late=""):
        program = find_program(command)
        if program is None:
            raise Error(f"no {command}: {no_command}")
        words = [program, "steps", "-p", str(os.getpid())]
        self.said = tempfile.TemporaryFile("w+", errors="replace")  # no pipe: it may say much
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, bufsize=0, start_new_session=True
        )
        self.timeout, self.too_late = timeout, too_late
        self.unread = b""  # of the next answer
        self.forked = False  # this is a child of the process that is measured
        self.broken = None  # why it is closed
        self.lock = threading.RLock()  # the finalizers that a collection runs may measure, too
        # a process that this one leaves is not to hold the pipes open, nor to use them
        os.register_at_fork(after_in_child=self.leave)
        try:
            self.answer("ready")
        except BaseException:
            self.close(0)
            raise

    def leave(self):
        global _starts
        self.forked, self.lock, _starts = True, threading.RLock(), threading.Lock()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass

    def line(self):
        """The next line that ttmem prints; empty where it has ended."""
        until = time.monotonic() + self.timeout
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        while b"\n" not in self.unread:
            if not poll.poll(max(0, until - time.monotonic()) * 1000):
                raise Error(f"ttmem did not answer within {self.timeout:g} s{self.too_late}")
            some = self.process.stdout.read(1 << 16)
            if not some:
                return b""
            self.unread += some
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def answer(self, key):
        line = self.line()
        if not line:
            self.said.seek(0)
            said = self.said.read().strip().splitlines()
            raise Error(said[-1].removeprefix("ttmem: ") if said else "ttmem ended")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or key not in answer:
            why = answer.get("error") if isinstance(answer, dict) else None
            raise Error(why or f"ttmem answered {line[:200].decode(errors='replace')!r}")
        return answer

    def ask(self, line, key):
        if self.forked:
            raise Error("this runs in a forked process, which is not measured")
        with self.lock:
            if self.broken:
                raise Error(self.broken)
            try:
                try:
                    self.process.stdin.write(line.encode(errors="replace") + b"\n")
                except OSError:
                    pass  # the answer will say why
                return self.answer(key)
            except BaseException as error:
                self.broken = str(error) or f"the measurement was interrupted by {type(error).__name__}"
                self.close(0)
                raise

    def begin(self, name):
        """Begins a step, and returns its id."""
        return self.ask("begin " + " ".join(name.split()), "began")["id"]

    def end(self, id):
        with self.lock:
            step = self.ask(f"end {id}", "step")
            if leaked(step):
                gc.collect()  # what only a cycle keeps is no leak
                step = self.ask(f"end {id}", "step")
            return step

    def close(self, patience=10):
        if self.forked:
            return
        self.broken = self.broken or "the measurement has ended"
        try:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(patience)
        except (OSError, subprocess.TimeoutExpired):
            try:
                self.process.kill()
                self.process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                pass  # it is root's, and ends with this process


_shared = None
_starts = threading.Lock()


def watcher(**options):
    """The Watcher of this process, which it starts if there is none; options are those of Watcher."""
    global _shared
    with _starts:
        if _shared is None or _shared.forked or _shared.broken:
            _shared = Watcher(**options)
            atexit.register(_shared.close)
            _shared.ask("reset", "peaks")
        return _shared


@dataclass(frozen=True)
class Left:
    """Memory that a step allocated and did not free, of one call stack in one region."""

    region: str
    bytes: int  # over all banks and chips
    buffers: int
    name: str  # the line and the operation
    calls: List[str]  # of the program's own code, innermost first
    file: Optional[str]  # of the first call
    line: Optional[int]

    def __str__(self):
        return f"{format_size(self.bytes):>12}  {self.buffers} in {self.region}  {self.name or 'unknown code'}"


@dataclass(frozen=True)
class Line:
    """What one line of the program had at a peak: of L1, on the fullest core."""

    bytes: int
    buffers: int
    name: str  # the line and the operation
    static: Optional[str]  # the kind of a program's own memory, such as circular_buffer; None for buffers
    file: Optional[str]
    line: Optional[int]

    def __str__(self):
        return f"{format_size(self.bytes):>12}  {self.name or 'unknown code'}"


@dataclass(frozen=True)
class Failure:
    """An allocation that failed in a step."""

    region: str
    devices: List[int]
    size_bytes: Optional[int]  # on each chip
    reason: Optional[str]
    message: Optional[str]
    name: str
    calls: List[str]
    file: Optional[str]
    line: Optional[int]

    def __str__(self):
        size = "" if self.size_bytes is None else format_size(self.size_bytes) + " "
        return f"{size}of {self.region} failed  {self.name or 'unknown code'}"


def _each(kind, rows):
    return [kind(*(row.get(field) for field in kind.__dataclass_fields__)) for row in rows]


class _Sizes(Dict[str, int]):
    """Bytes by region; of a region that was not used, 0."""

    def __missing__(self, region: str) -> int:
        return 0


class Step:
    """What a part of this program allocates: see step."""

    def __init__(self, name: str, required: bool) -> None:
        self.name = name
        self.required = required
        self.measured = False  # the figures below are there
        self.peaks: Dict[str, int] = _Sizes()  # bytes by region, on the chip that used most
        self.chips: Dict[int, Dict[str, int]] = {}  # the same for each chip
        self.lines: Dict[str, List[Line]] = {}  # what these peaks were made of, by region: the largest lines
        self.left: List[Left] = []
        self.failures: List[Failure] = []
        self.lost = 0
        self.seconds: Optional[float] = None
        self.document: Optional[Dict[str, Any]] = None  # the answer of `ttmem steps`
        self._watcher = self._id = self._began = None

    def __enter__(self) -> "Step":
        self.__init__(self.name, self.required)  # it may be used again
        if not self.name.strip():
            raise ValueError("a step needs a name")
        try:
            self._watcher = watcher()
            self._id = self._watcher.begin(self.name)
            self._began = time.monotonic()
        except (Error, OSError) as error:
            self._fails(error)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._watcher is None:
            return
        seconds = time.monotonic() - self._began
        try:
            self._take(self._watcher.end(self._id), seconds)
        except (Error, OSError) as failed:
            self._fails(failed, raises=kind is None)

    def _fails(self, error, raises=True):
        self._watcher = None
        text = f"the device memory of step {self.name} is not measured: {error}"
        if self.required and raises:
            raise Error(text) from None
        warnings.warn(text, RuntimeWarning, stacklevel=3)

    def _take(self, document, seconds):
        self.document, self.measured, self.lost, self.seconds = document, True, document["lost"], seconds
        for peak in document["peaks"]:
            region, size = peak["region"], peak["peak_bytes"]
            if region not in self.peaks or size > self.peaks[region]:
                self.peaks[region], self.lines[region] = size, _each(Line, peak.get("lines", []))
            self.chips.setdefault(peak["device"], _Sizes())[region] = size
        self.left = _each(Left, leaked(document))
        self.failures = _each(Failure, document["failures"])
        if self.lost:
            warnings.warn(f"step {self.name}: figures not reliable: {lost_events(self.lost)}", RuntimeWarning, stacklevel=3)

    def __repr__(self):
        if not self.measured:
            return f"step {self.name}: not measured"
        peaks = [f"{region} {format_size(size)}" for region, size in self.peaks.items() if size]
        left = format_size(sum(one.bytes for one in self.left))
        lines = [f"step {self.name}: {self.seconds:.3g} s, peak {', '.join(peaks) or '0 B'}, {left} left"]
        return "\n".join(lines + [str(one) for one in self.failures + self.left])


def step(name: str, required: bool = True) -> Step:
    """Measures the device memory that a part of this program uses:

        with ttmem.step("forward") as s:
            y = model(x)
        s.peaks["DRAM"], s.chips[0]["L1"]    # the highest use in bytes, with what was live before
        s.lines["DRAM"]                      # what that was made of, by line
        s.left                               # what was allocated and not freed, by line, largest first
        s.failures                           # allocations that failed

    If this process cannot be traced, that is an Error or, with required=False, a warning, and nothing is measured.
    Steps may be inside others, also of other threads. A step that left memory collects garbage and looks again.
    """
    return Step(name, required)


def _use(verb):
    document = watcher().ask(verb, "peaks")
    if document["lost"]:
        warnings.warn(f"figures not reliable: {lost_events(document['lost'])}", RuntimeWarning, stacklevel=4)
    return document["peaks"]


def _bytes(device, region, field):
    if region not in REGIONS:
        raise ValueError(f"no region {region!r}: there are {', '.join(REGIONS)}")
    rows = _use("peaks")
    there = sorted({row["device"] for row in rows})
    if device is None:
        wanted = there
    else:
        wanted = list(device.get_device_ids()) if hasattr(device, "get_device_ids") else [int(device)]
    unknown = [one for one in wanted if one not in there]
    if unknown and there:
        raise ValueError(f"no chip {unknown[0]}; available: {', '.join(map(str, there))}")
    return max((row[field] for row in rows if row["region"] == region and row["device"] in wanted), default=0)


def memory_allocated(device: Any = None, region: str = "DRAM") -> int:
    """The bytes of a region of a chip that this process uses now: in L1, on the fullest core.

    device is a chip, or a device of ttnn. Of several chips, and without a device, it is the one that uses most.
    Before the process has opened a device, that is 0.
    """
    return _bytes(device, region, "end_bytes")


def max_memory_allocated(device: Any = None, region: str = "DRAM") -> int:
    """The highest use since reset_peak_memory_stats() or, without it, since the first use of this module. The
    arguments are those of memory_allocated."""
    return _bytes(device, region, "peak_bytes")


def reset_peak_memory_stats() -> None:
    """Begins the peaks of max_memory_allocated again, at the present use, for all regions of all chips."""
    _use("reset")
