"""A recording, read by the program ttmem."""

import html
import json
import os
import subprocess
import warnings

# The fields that are always there, so that an empty frame has them too.
BUFFERS = (
    "pid devices chips address since_ns name tid comm region layout buffer_id object size_bytes page_size_bytes"
    " bytes_per_bank banks allocated_bytes"
).split()
CIRCULAR_BUFFERS = "pid devices chips address since_ns name program_id static_kind bytes_per_core cores".split()
PEAKS = "devices region time_ns bytes capacity_bytes".split()
HOLDERS = ["peak_devices", "region", "pid", "bytes", "count", "name"]
TIMELINE = ["devices", "region", "time_ns", "min_bytes", "max_bytes"]
LEAKS = "bytes count allocated class growing oldest_ns name pid region layout devices".split()
OPERATIONS = (
    "pid devices first_ns last_ns peak_time_ns peak_program_id peak_device peak_core peak_bytes peak_tensor_bytes"
    " peak_cb_bytes peak_dfb_bytes peak_scratchpad_bytes name"
).split()
FAILURES = "time_ns pid uid reason region devices".split()


class Error(Exception):
    """ttmem cannot read the recording, or does not take the arguments."""


class Recording:
    """A recording. Arguments such as chip=0, region=["L1", "CB"], pid=4242 or from_="warm" are the
    flags of the command that a method names."""

    def __init__(self, file, command="ttmem"):
        self.file = os.fspath(file)
        self.command = os.fspath(command)
        self.json("report")  # a file that cannot be read is an error now

    def __repr__(self):
        return f"ttmem.open({self.file!r})"

    def at(self, moment="end", **flags):
        """What is live at a moment: begin, end, peak, failure, a mark, or a time after the first
        event such as 2.5s (ttmem dump)."""
        return State(self.json("dump", at=moment, **flags))

    def peaks(self, **flags):
        """The peak of each region of each chip, of L1 per core (ttmem peak)."""
        large = ("groups", "static_groups", "holders", "programs", "timeline", "static_timeline")
        peaks = self.json("peak", **flags)["peaks"]
        return frame([{k: v for k, v in peak.items() if k not in large} for peak in peaks], PEAKS)

    def holders(self, **flags):
        """What each peak was made of, by call site: buffers, and programs' circular buffers, which
        share their space (ttmem peak)."""
        return frame(
            [
                {"peak_devices": tuple(peak["devices"]), "region": peak["region"], **holder}
                for peak in self.json("peak", **flags)["peaks"]
                for holder in peak["holders"] + peak.get("programs", [])
            ],
            HOLDERS,
        )

    def timeline(self, **flags):
        """The use of each region over time: its minimum and maximum in each step (ttmem peak)."""
        rows = []
        for peak in self.json("peak", **flags)["peaks"]:
            line = peak["timeline"]
            for i, (low, high) in enumerate(zip(line["min_bytes"], line["max_bytes"])):
                time = line["begin_ns"] + i * line["step_ns"]
                rows.append(dict(zip(TIMELINE, (tuple(peak["devices"]), peak["region"], time, low, high))))
        return frame(rows, TIMELINE)

    def leaks(self, **flags):
        """Call sites that leak, most bytes first (ttmem leaks)."""
        return frame(self.json("leaks", **flags)["leaks"], LEAKS)

    def operations(self, **flags):
        """The run and the core of each operation with the least of L1 free (ttmem ops)."""
        return frame(self.json("ops", **flags)["operations"], OPERATIONS)

    def failures(self, **flags):
        """Allocations that failed, oldest first (ttmem oom)."""
        return frame(self.json("oom", **flags)["failures"], FAILURES)

    def json(self, verb, **flags):
        """The JSON document of a command, without a limit of its rows."""
        limit = [] if verb in ("report", "peak") else ["--limit=0"]
        text = self._run(verb, "--json", *limit, *words(flags))
        return printable(json.loads(text))

    def _run(self, verb, *args):
        file = os.path.join(".", self.file) if self.file.startswith("-") else self.file
        try:
            done = subprocess.run(
                [self.command, verb, file, *args], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
            )
        except OSError as error:
            raise Error(f"no {self.command}: install ttmem, or name it: ttmem.open(file, command=...): {error}") from None
        said = [line.removeprefix("ttmem: ") for line in done.stderr.splitlines()]
        if not done.stdout:
            raise Error(said[-1] if said else f"{self.command} {verb} failed with status {done.returncode}")
        if verb != "report" or "--json" in args:
            for line in said:
                warnings.warn(line, stacklevel=4)
        return done.stdout

    def _repr_html_(self):
        """The flame graph of the recording, in a frame in which its scripts see nothing else."""
        page = html.escape(self._run("report", "--flamegraph=-"))
        return f'<iframe sandbox="allow-scripts" style="width: 100%; height: 40em; border: 0" srcdoc="{page}"></iframe>'


class State:
    """What is live at a moment: the frames buffers and circular_buffers."""

    def __init__(self, document):
        self.time_ns = document["time_ns"]
        self.buffers = frame(document["buffers"], BUFFERS)
        self.circular_buffers = frame(document["statics"], CIRCULAR_BUFFERS)

    def __repr__(self):
        return f"<State: {len(self.buffers)} buffers, {len(self.circular_buffers)} circular buffers>"


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
    return pandas.DataFrame(flat, columns=list(names), dtype=object).convert_dtypes()
