"""A recording, read by the program ttmem."""

from __future__ import annotations

import datetime
import os
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from ttmem.child import Answer, Children, Error, document, named
from ttmem.columns import TEXT, Columns, read_columns
from ttmem.program import find_program

if TYPE_CHECKING:
    import types

    import matplotlib.figure
    import pandas
    import pyarrow

__all__ = ["Error", "Recording", "State"]

# The fields that are always there, so that an empty frame has them too.
BUFFERS = (
    "pid devices chips address since_ns name tid comm region layout buffer_id object size_bytes page_size_bytes"
    " bytes_per_bank banks reserved_banks data_bytes allocated_bytes"
).split()
CIRCULAR_BUFFERS = "pid devices chips address since_ns name program_id static_kind bytes_per_core cores".split()
PEAKS = "devices region time_ns bytes capacity_bytes".split()
HOLDERS = ["peak_devices", "region", "pid", "bytes", "count", "name"]
TIMELINE = ["devices", "region", "time_ns", "min_bytes", "max_bytes"]
LEAKS = "bytes count allocated class growing oldest_ns name pid region layout devices".split()
OPERATIONS = (
    "pid devices first_ns last_ns temporary_buffers temporary_bytes peak_time_ns peak_program_id peak_device peak_core peak_bytes peak_tensor_bytes"
    " peak_cb_bytes peak_dfb_bytes peak_scratchpad_bytes name"
).split()
FAILURES = "time_ns pid uid reason region devices".split()
MAP = "devices region time_ns kind address".split()
DIFF = "key a_buffers a_bytes b_buffers b_bytes change_buffers change_bytes".split()
ADVICE = "region pid devices time_ns peak_bytes name count bytes runs freed_peak_bytes freed_proved".split()
# The types of their columns in an empty frame, in which pandas sees no values; others are Int64.
TYPES = {
    **dict.fromkeys("name comm region layout static_kind class reason kind key".split(), TEXT),
    **dict.fromkeys("devices peak_devices cores peak_core".split(), "object"),
    **dict.fromkeys("growing freed_proved".split(), "boolean"),
}
# Times that are no moments.
DURATIONS = "age_ns idle_ns lived_ns oldest_ns step_ns duration_ns".split()
MIB = 1 << 20


class Recording:
    """A recording. Arguments such as chip=0, region=["L1", "CB"], pid=4242 or from_="warm" are the
    flags of the command that a method names.

    With units=True, frames have seconds and MiB beside ns and bytes: time_s beside time_ns, counted from the first
    event as in at("2.5s"), and size_mib beside size_bytes. With callers=True, names have the callers of their lines.

    A child of this process answers all questions. It ends with the recording, or with close()."""

    def __init__(self, file: str | os.PathLike[str], command: str | os.PathLike[str] = "ttmem", *, units: bool = False, callers: bool = False) -> None:
        self.file = os.fspath(file)
        self.command = find_program(os.fspath(command)) or os.fspath(command)
        self.units, self.callers = units, callers
        self._children = Children(self.command, self.file)
        self._end = weakref.finalize(self, self._children.close)
        child = self._children.take()  # a file that cannot be read is an error now
        self._opened: dict[str, Any] = child.opened
        self._children.give(child)

    def __repr__(self) -> str:
        return f"ttmem.open({self.file!r})"

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child. Frames that were made stay."""
        self._end()

    @property
    def metadata(self) -> dict[str, Any]:
        """The file and its size, the version of the program ttmem, and when the recording began: by CLOCK_MONOTONIC, by
        the wall clock, and its first event. report() has its processes and chips."""
        began = self._opened.get("began_wall_ns") or None
        return {
            "file": self.file,
            "file_bytes": self._opened["bytes"],
            "ttmem_version": self._opened["version"],
            "began_ns": self._opened["began_ns"],
            "began_wall_ns": began,
            "began": began and datetime.datetime.fromtimestamp(began / 1e9, datetime.timezone.utc),
            "first_ns": self._opened["first_ns"],
        }

    def report(self, **flags: Any) -> dict[str, Any]:
        """What `ttmem report` says, as a document: processes, chips, peaks, leaks and failures."""
        return self._document("report", ["--json", *words(flags)])

    def at(self, moment: str = "end", **flags: Any) -> State:
        """What is live at a moment: begin, end, peak, failure, story, a mark, or a time after the first
        event such as 2.5s (ttmem dump)."""
        return self._at(moment, flags)

    def _at(self, moment: str, flags: Mapping[str, Any], only: Sequence[str] = ()) -> State:
        read = self._ask("dump", ["--json", "--limit=0", *words({"at": moment, **flags})], columns=True, only=only)
        return State(self, *(member(read, key) for key in ("time_ns", "buffers", "statics")))

    def buffers(self, at: str = "end", *, columns: Sequence[str] | None = None, **flags: Any) -> pandas.DataFrame:
        """The buffers that are live at a moment: at(moment).buffers, or some of its columns, which need less time and
        memory."""
        some = self._at(at, flags, columns or ())._buffers
        if columns and not set(columns) <= {*BUFFERS, *some.columns}:
            some = self.at(at, **flags)._buffers  # for an error that names all
        return self._shown(some.pandas(BUFFERS, TYPES, columns, last=True))

    def peaks(self, **flags: Any) -> pandas.DataFrame:
        """The peak of each region of each chip, of L1 per core (ttmem peak)."""
        large = ("groups", "static_groups", "holders", "programs", "timeline", "static_timeline", "unused")
        peaks = member(self.json("peak", **flags), "peaks")
        return self._frame([{k: v for k, v in peak.items() if k not in large} for peak in peaks], PEAKS)

    def holders(self, **flags: Any) -> pandas.DataFrame:
        """What each peak was made of, by call site: buffers and, in L1, what the program that ran
        had on the fullest core. The bytes of the rows of a peak add up to its bytes in `peaks()`: of L1
        those of a core, of other regions those of all banks (ttmem peak)."""
        rows = []
        for peak in member(self.json("peak", **flags), "peaks"):
            others = peak.get("other_users_bytes")
            for holder in (
                member(peak, "holders")
                + peak.get("programs", [])
                + ([{"pid": None, "bytes": others, "count": None, "name": "other users"}] if others else [])
            ):
                rows.append({"peak_devices": tuple(peak["devices"]), "region": peak["region"], **holder})
        return self._frame(rows, HOLDERS)

    def timeline(self, **flags: Any) -> pandas.DataFrame:
        """The use of each region over time: its minimum and maximum in each step (ttmem peak)."""
        rows = []
        for peak in member(self.json("peak", **flags), "peaks"):
            line = peak["timeline"]
            for i, (low, high) in enumerate(zip(line["min_bytes"], line["max_bytes"])):
                time = line["begin_ns"] + i * line["step_ns"]
                rows.append(dict(zip(TIMELINE, (tuple(peak["devices"]), peak["region"], time, low, high))))
        return self._frame(rows, TIMELINE)

    def leaks(self, **flags: Any) -> pandas.DataFrame:
        """Call sites that leak, most bytes first (ttmem leaks)."""
        return self._frame(member(self.json("leaks", **flags), "leaks"), LEAKS)

    def operations(self, **flags: Any) -> pandas.DataFrame:
        """The run and the core of each operation with the least of L1 free (ttmem ops)."""
        return self._frame(member(self.json("ops", **flags), "operations"), OPERATIONS)

    def failures(self, **flags: Any) -> pandas.DataFrame:
        """Allocations that failed, oldest first (ttmem oom)."""
        return self._frame(member(self.json("oom", **flags), "failures"), FAILURES)

    def advise(self, **flags: Any) -> pandas.DataFrame:
        """The lines whose buffers are held after their last use at the peak of DRAM or L1, and what the peak
        is if they are freed after it: bytes are of all banks (ttmem advise)."""
        rows = []
        for peak in member(self.json("advise", **flags), "peaks"):
            about = {key: member(peak, key) for key in ("region", "pid", "devices", "time_ns", "peak_bytes")}
            rows += [{**about, **line} for line in member(peak, "lines")]
        return self._frame(rows, ADVICE)

    def map(self, **flags: Any) -> pandas.DataFrame:
        """The addresses of each region, in order: what is there is of a kind, a buffer, a hole or, in L1, static, which
        is a circular or dataflow buffer or a scratchpad (ttmem map)."""
        rows = []
        for region in member(self.json("map", **flags), "regions"):
            about = {key: member(region, key) for key in ("devices", "region", "time_ns")}
            some = [
                {**about, "kind": kind, **one}
                for kind, key in (("buffer", "blocks"), ("hole", "holes"), ("static", "statics"))
                for one in member(region, key)
            ]
            rows += sorted(some, key=lambda one: one["address"])
        return self._frame(rows, MAP)

    def diff(self, other: Recording | str | os.PathLike[str], **flags: Any) -> pandas.DataFrame:
        """What changed from this recording, a, to another one, b, by call site, largest change first (ttmem diff)."""
        file = other.file if isinstance(other, Recording) else os.fspath(other)
        document = self._document("diff", [named(file), "--json", "--limit=0", *words(flags)])
        return self._frame(member(document, "groups"), DIFF)

    def events(self, **flags: Any) -> Iterator[dict[str, Any]]:
        """An iterator over the events, oldest first, as dicts (ttmem log, docs/events.md). They are
        read one by one, so that a recording may be larger than the memory."""
        with self._children.ask(["log", "--json", *words(flags)]) as (answer, stream):
            for line in stream:
                yield document(line, f"{self.command} log")
            self._complain(answer)

    def json(self, verb: str, **flags: Any) -> Any:
        """The JSON document of a command, without a limit of its rows; of "log", the list of its
        events."""
        if verb == "log":
            return list(self.events(**flags))
        return self._document(verb, ["--json", *([] if verb == "report" else ["--limit=0"]), *words(flags)])

    def plot(self, **flags: Any) -> matplotlib.figure.Figure:
        """Draws the use of each region over time, with matplotlib: timeline()."""
        from ttmem.plotting import plot

        return plot(self, self.timeline(**flags), self.peaks(**flags))

    def plot_peak(self, most: int = 12, **flags: Any) -> matplotlib.figure.Figure:
        """Draws what each peak was made of, its largest call sites, with matplotlib: holders()."""
        from ttmem.plotting import plot_peak

        return plot_peak(self.holders(**flags), most)

    def _document(self, verb: str, args: Sequence[str]) -> dict[str, Any]:
        return self._ask(verb, args, columns=False)

    def _ask(self, verb: str, args: Sequence[str], columns: bool, only: Sequence[str] = ()) -> dict[str, Any]:
        with self._children.ask([verb, *args], columns, only) as (answer, stream):
            line = stream.readline()
            read = document(line, f"{self.command} {verb}") if line else {}
            if columns:
                read = read_columns(read, stream)
            if stream.read(1):
                raise Error(f"{self.command} {verb} printed no JSON of ttmem: more than a document")
            self._complain(answer)
        return read

    def _complain(self, answer: Answer) -> None:
        """Raises an error if a command failed. If it printed some of its output, what it said is
        warnings."""
        said = answer.lines()
        if answer.status and not answer.some:
            raise Error(said[-1] if said else f"{self.command} {answer.verb} failed with status {answer.status}")
        for line in said:
            warnings.warn(line, stacklevel=outside())

    def _frame(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pandas.DataFrame:
        return self._shown(frame(rows, columns))

    def _shown(self, made: pandas.DataFrame) -> pandas.DataFrame:
        """A frame with callers in its names, and with its units, if they were chosen."""
        if self.callers and "callers" in made and "name" in made:
            callers = ["".join(f" ← {one}" for one in some) if isinstance(some, (tuple, list)) else "" for some in made["callers"]]
            made["name"] = made["name"] + callers
        return with_units(made, self._opened["first_ns"]) if self.units else made

    def _repr_html_(self) -> str:
        """The page of the recording, in a frame in which its scripts see nothing else (ttmem html)."""
        import html

        with self._children.ask(["html", "--output=-"]) as (answer, stream):
            page = stream.read().decode(errors="replace")
            if answer.status or not page:
                said = answer.lines()
                raise Error(said[-1] if said else f"{self.command} html failed with status {answer.status}")
        return f'<iframe sandbox="allow-scripts" style="width: 100%; height: 40em; border: 0" srcdoc="{html.escape(page)}"></iframe>'


class State:
    """What is live at a moment: the frames buffers and circular_buffers."""

    def __init__(self, run: Recording, time_ns: int, buffers: Columns, statics: Columns) -> None:
        self.time_ns = time_ns
        self._run, self._buffers, self._statics = run, buffers, statics
        self._frames: dict[str, pandas.DataFrame] = {}

    def __repr__(self) -> str:
        return f"<State: {self._buffers.rows} buffers, {self._statics.rows} circular buffers>"

    @property
    def buffers(self) -> pandas.DataFrame:
        return self._frame("buffers", self._buffers, BUFFERS)

    @property
    def circular_buffers(self) -> pandas.DataFrame:
        return self._frame("statics", self._statics, CIRCULAR_BUFFERS)

    def arrow(self) -> pyarrow.Table:
        """The buffers as a table of Arrow, if pyarrow is installed: the same columns, without copies of numbers."""
        return self._buffers.arrow()

    def _frame(self, key: str, of: Columns, first: Sequence[str]) -> pandas.DataFrame:
        if key not in self._frames:
            self._frames[key] = self._run._shown(of.pandas(first, TYPES))
        return self._frames[key]


def outside() -> int:
    """The level of the stack at which this package was called."""
    level, at = 1, sys._getframe(1)
    while at.f_back and (at.f_globals.get("__name__", "").startswith("ttmem.") or at.f_globals.get("__name__") == "contextlib"):
        level, at = level + 1, at.f_back
    return level


def member(document: Mapping[str, Any], key: str) -> Any:
    """A field of a document that is always there."""
    try:
        return document[key]
    except KeyError:
        raise Error(f"ttmem's JSON has no {key!r}: the program is of another version than this package") from None


def words(flags: Mapping[str, Any]) -> list[str]:
    """Arguments of Python as flags of a command."""
    args = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple, range)) else [value]:
            args.append(flag if one is True else f"{flag}={one}")
    return args


def with_units(made: pandas.DataFrame, first_ns: int) -> pandas.DataFrame:
    """A frame with a column in seconds after each in ns, and one in MiB after each in bytes."""
    import pandas

    columns = {}
    for key in made.columns:
        columns[key] = made[key]
        parts = key.split("_")
        if parts[-1] == "ns" and "wall" not in parts:
            begin = 0 if key in DURATIONS else first_ns
            columns[key[:-2] + "s"] = (made[key] - begin) / 1e9
        elif "bytes" in parts:
            columns["_".join("mib" if part == "bytes" else part for part in parts)] = made[key] / MIB
    return pandas.DataFrame(columns, copy=False)


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pandas.DataFrame:
    """Rows of a document as a data frame, whose first columns are always there. Chips are tuples,
    by which one can group, and the fields of an object have its name before theirs."""
    import pandas  # here: pytest loads this package in every run

    flat: list[dict[str, Any]] = []
    for row in rows:
        one: dict[str, Any] = {}
        for key, value in row.items():
            if isinstance(value, dict):
                one.update({f"{key}_{inner}": v for inner, v in value.items()})
            else:
                one[key] = tuple(value) if key == "devices" else value
        flat.append(one)
    names = dict.fromkeys(columns)
    for one in flat:
        names.update(dict.fromkeys(one))
    made = pandas.DataFrame(flat, columns=list(names), dtype=object).convert_dtypes()
    types = {name: TEXT for name, kind in made.dtypes.items() if kind == "string"}
    return made.astype(types if flat else {name: TYPES.get(name, "Int64") for name in columns})
