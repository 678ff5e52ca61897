"""A recording, read by the program ttmem."""

import html
import json
import os
import subprocess
import tempfile
import warnings

from ttmem.program import find_program

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
ADVICE = "region pid devices time_ns peak_bytes name count bytes runs freed_peak_bytes freed_proved".split()
# The types of their columns in an empty frame, in which pandas sees no values; others are Int64.
TYPES = {
    **dict.fromkeys("name comm region layout static_kind class reason".split(), "string"),
    **dict.fromkeys("devices peak_devices cores peak_core".split(), "object"),
    **dict.fromkeys("growing freed_proved".split(), "boolean"),
}


class Error(Exception):
    """ttmem cannot read the recording, does not take the arguments, or printed something that this
    package cannot read."""


class Recording:
    """A recording. Arguments such as chip=0, region=["L1", "CB"], pid=4242 or from_="warm" are the
    flags of the command that a method names."""

    def __init__(self, file, command="ttmem"):
        self.file = os.fspath(file)
        self.command = find_program(os.fspath(command)) or os.fspath(command)
        self.json("report")  # a file that cannot be read is an error now

    def __repr__(self):
        return f"ttmem.open({self.file!r})"

    def at(self, moment="end", **flags):
        """What is live at a moment: begin, end, peak, failure, story, a mark, or a time after the first
        event such as 2.5s (ttmem dump)."""
        document = self.json("dump", at=moment, **flags)
        return State(*(member(document, key) for key in ("time_ns", "buffers", "statics")))

    def peaks(self, **flags):
        """The peak of each region of each chip, of L1 per core (ttmem peak)."""
        large = ("groups", "static_groups", "holders", "programs", "timeline", "static_timeline", "unused")
        peaks = member(self.json("peak", **flags), "peaks")
        return frame([{k: v for k, v in peak.items() if k not in large} for peak in peaks], PEAKS)

    def holders(self, **flags):
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
        return frame(rows, HOLDERS)

    def timeline(self, **flags):
        """The use of each region over time: its minimum and maximum in each step (ttmem peak)."""
        rows = []
        for peak in member(self.json("peak", **flags), "peaks"):
            line = peak["timeline"]
            for i, (low, high) in enumerate(zip(line["min_bytes"], line["max_bytes"])):
                time = line["begin_ns"] + i * line["step_ns"]
                rows.append(dict(zip(TIMELINE, (tuple(peak["devices"]), peak["region"], time, low, high))))
        return frame(rows, TIMELINE)

    def leaks(self, **flags):
        """Call sites that leak, most bytes first (ttmem leaks)."""
        return frame(member(self.json("leaks", **flags), "leaks"), LEAKS)

    def operations(self, **flags):
        """The run and the core of each operation with the least of L1 free (ttmem ops)."""
        return frame(member(self.json("ops", **flags), "operations"), OPERATIONS)

    def failures(self, **flags):
        """Allocations that failed, oldest first (ttmem oom)."""
        return frame(member(self.json("oom", **flags), "failures"), FAILURES)

    def advise(self, **flags):
        """The lines whose buffers are held after their last use at the peak of DRAM or L1, and what the peak
        is if they are freed after it: bytes are of all banks (ttmem advise)."""
        rows = []
        for peak in member(self.json("advise", **flags), "peaks"):
            about = {key: member(peak, key) for key in ("region", "pid", "devices", "time_ns", "peak_bytes")}
            rows += [{**about, **line} for line in member(peak, "lines")]
        return frame(rows, ADVICE)

    def events(self, **flags):
        """An iterator over the events, oldest first, as dicts (ttmem log, docs/events.md). They are
        read one by one, so that a recording may be larger than the memory."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            process = self._start("log", "--json", *words(flags), stdout=subprocess.PIPE, stderr=said)
            try:
                some = False
                for line in process.stdout:
                    some = True
                    yield self._document("log", line)
                status = process.wait()
            finally:
                process.kill()  # if the caller stops early
                process.stdout.close()
                process.wait()
            said.seek(0)
            self._complain("log", status, said.read(), some, 3)

    def json(self, verb, **flags):
        """The JSON document of a command, without a limit of its rows; of "log", the list of its
        events."""
        if verb == "log":
            return list(self.events(**flags))
        limit = [] if verb == "report" else ["--limit=0"]
        return self._document(verb, self._run(verb, "--json", *limit, *words(flags)))

    def _document(self, verb, text):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or document.get("v") != 1:
            raise Error(f"{self.command} {verb} printed no JSON of ttmem: {printable(text[:100])!r}")
        return printable(document)

    def _start(self, verb, *args, **streams):
        file = os.path.join(".", self.file) if self.file.startswith("-") else self.file
        try:
            return subprocess.Popen(
                [self.command, verb, file, *args], stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace", **streams
            )
        except OSError as error:
            raise Error(f"no {self.command}: install ttmem, or name it: ttmem.open(file, command=...): {error}") from None

    def _run(self, verb, *args):
        with self._start(verb, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            text, said = process.communicate()
        self._complain(verb, process.returncode, said, bool(text), 5 if "--json" in args else None)
        if not text:
            raise Error(f"{self.command} {verb} printed nothing")
        return text

    def _complain(self, verb, status, said, some, level):
        """Raises an error if a command failed. If it printed some of its output, what it said is
        warnings."""
        said = [line.removeprefix("ttmem: ") for line in said.splitlines()]
        if status < 0 or status and not some:
            raise Error(said[-1] if said else f"{self.command} {verb} failed with status {status}")
        if level:
            for line in said:
                warnings.warn(line, stacklevel=level)

    def _repr_html_(self):
        """The page of the recording, in a frame in which its scripts see nothing else (ttmem html)."""
        page = html.escape(self._run("html", "--output=-"))
        return f'<iframe sandbox="allow-scripts" style="width: 100%; height: 40em; border: 0" srcdoc="{page}"></iframe>'


class State:
    """What is live at a moment: the frames buffers and circular_buffers."""

    def __init__(self, time_ns, buffers, statics):
        self.time_ns = time_ns
        self.buffers = frame(buffers, BUFFERS)
        self.circular_buffers = frame(statics, CIRCULAR_BUFFERS)

    def __repr__(self):
        return f"<State: {len(self.buffers)} buffers, {len(self.circular_buffers)} circular buffers>"


def member(document, key):
    """A field of a document that is always there."""
    try:
        return document[key]
    except KeyError:
        raise Error(f"ttmem's JSON has no {key!r}: the program is of another version than this package") from None


def printable(value):
    """A document without what a terminal acts on: names come from traced programs."""
    if isinstance(value, dict):
        return {printable(key): printable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [printable(one) for one in value]
    if isinstance(value, str) and not value.isprintable():
        return "".join(c for c in value if c.isprintable() or c == "\n")
    return value


def words(flags):
    """Arguments of Python as flags of a command."""
    args = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple, range)) else [value]:
            args.append(flag if one is True else f"{flag}={one}")
    return args


def frame(rows, columns):
    """Rows of a document as a data frame, whose first columns are always there. Chips are tuples,
    by which one can group, and the fields of an object have its name before theirs."""
    import pandas  # here: pytest loads this package in every run

    flat = []
    for row in rows:
        one = {}
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
    return made if flat else made.astype({name: TYPES.get(name, "Int64") for name in columns})
