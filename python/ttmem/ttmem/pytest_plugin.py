"""Limits on what tests leave in, and take of, the memory of Tenstorrent devices.

A test with a limit is marked:

    @pytest.mark.ttmem(limit_leaks="64 KiB", limit_peak={"L1": "512 KiB"})
    def test_attention(device): ...

or limits of all tests are in pytest.ini, and `pytest --ttmem` measures every test. What a test
leaves is what it allocated between its call and the end of its teardown and did not free; its peak is
the most that a region of one chip had in use meanwhile, of L1 on the fullest core. Both are seen from
outside, by `ttmem steps`: neither the tested code nor ttnn is changed.
"""

import gc
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
REGIONS = ("DRAM", "L1", "L1_SMALL", "TRACE", "SYSTEM_MEMORY")
OPTIONS = ("limit_leaks", "limit_peak")
TRACEBACK = "the test failed: its traceback keeps its variables, which may be some of this"


def parse_size(text):
    """Bytes of a size such as 4096, "64 KiB" or "1.5MiB"; ValueError for another one."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text) if isinstance(text, str) else None
    if match is None or match.group(2).upper() not in UNITS:
        raise ValueError(f"{text!r} is not a size: give bytes, or one such as '64 KiB'")
    return int(float(match.group(1)) * UNITS[match.group(2).upper()])


def format_size(size):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


class Limits:
    """What one test may do; a limit of None is no limit."""

    def __init__(self, leaks=None, peak=None):
        self.leaks = None if leaks is None else parse_size(leaks)
        if not isinstance(peak or {}, dict):
            raise ValueError("limit_peak is by region, such as {'L1': '512 KiB'}")
        self.peak = {region: parse_size(size) for region, size in (peak or {}).items() if size is not None}
        for region in peak or {}:
            if region not in REGIONS:
                raise ValueError(f"limit_peak: no region {region!r}: there are {', '.join(REGIONS)}")

    def __bool__(self):
        return self.leaks is not None or bool(self.peak)

    def changed(self, marker):
        """The limits of a test with a marker, which replaces those that it names."""
        unknown = sorted(set(marker.kwargs) - set(OPTIONS))
        if unknown or marker.args:
            raise ValueError(f"ttmem takes {' and '.join(OPTIONS)}, not {', '.join(unknown) or marker.args}")
        peak = marker.kwargs.get("limit_peak", {})
        return Limits(
            marker.kwargs.get("limit_leaks", self.leaks), {**self.peak, **peak} if isinstance(peak, dict) else peak
        )


def ini_limits(config):
    """The limits of pytest.ini, for every test."""
    peak = {}
    for line in config.getini("ttmem_limit_peak"):
        region, _, size = line.partition(":")
        peak[region.strip()] = size.strip()
    return Limits(config.getini("ttmem_limit_leaks") or None, peak)


class Watcher:
    """`ttmem steps` of this process."""

    def __init__(self, command):
        if shutil.which(command) is None:
            raise RuntimeError(f"no {command}: install ttmem, or say where it is with --ttmem-command")
        words = [command, "steps", "-p", str(os.getpid())]
        if os.geteuid() != 0 and not os.path.exists("/run/ttmem.sock"):
            words = ["sudo", "-n"] + words  # no service to ask: tracing needs root
        self.said = tempfile.TemporaryFile("w+")  # no pipe: it may say much
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True, start_new_session=True
        )
        # a process that a test leaves is not to hold the pipes open, nor to use them
        os.register_at_fork(after_in_child=self.leave)
        self.answer("ready")

    def leave(self):
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                os.close(pipe.fileno())
            except (OSError, ValueError):
                pass  # closed already

    def answer(self, key):
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            said = self.said.read().strip().splitlines()
            raise RuntimeError(said[-1].removeprefix("ttmem: ") if said else "ttmem ended")
        answer = json.loads(line)
        if key not in answer:
            raise RuntimeError(answer.get("error", f"ttmem answered {line.strip()}"))
        return answer

    def ask(self, line, key):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the answer will say why
        return self.answer(key)

    def begin(self, name):
        return self.ask("begin " + " ".join(name.split()), "began")

    def end(self):
        step = self.ask("end", "step")
        if leaked(step):
            gc.collect()  # what only a cycle keeps is no leak
            step = self.ask("end", "step")
        return step

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            try:
                self.process.kill()
            except OSError:
                pass  # it is root's, and ends with this process


def pytest_addoption(parser):
    group = parser.getgroup("ttmem", "device memory of Tenstorrent chips")
    group.addoption("--ttmem", action="store_true", help="measure every test, not only those with limits")
    group.addoption("--no-ttmem", action="store_true", help="measure none, and let no limit fail")
    group.addoption("--ttmem-command", default="ttmem", metavar="PATH", help="the ttmem to run (default: ttmem)")
    parser.addini("ttmem_limit_leaks", "limit_leaks of every test, such as 64 KiB", default="")
    parser.addini("ttmem_limit_peak", "limit_peak of every test: a line such as L1: 512 KiB for each region", type="linelist")


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "ttmem(limit_leaks=SIZE, limit_peak={REGION: SIZE}): fail where the test leaves more device memory, "
        "or has more in use on a chip (of L1: on a core), than that",
    )
    if not config.getoption("--no-ttmem"):
        try:
            limits = ini_limits(config)
        except ValueError as error:
            raise pytest.UsageError(f"ttmem limits: {error}") from None
        config.pluginmanager.register(Plugin(config, limits), "ttmem-plugin")


class Plugin:
    def __init__(self, config, limits):
        self.all = config.getoption("--ttmem") or bool(limits)
        self.of_all = limits
        self.command = config.getoption("--ttmem-command")
        self.watcher = None
        self.broken = None  # why nothing can be measured
        self.running = False  # a step has begun
        self.raised = False  # the test ended by an exception
        self.steps = []

    def limits(self, item):
        marker = item.get_closest_marker("ttmem")
        return self.of_all.changed(marker) if marker else self.of_all

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        limits, wrong = None, None
        try:
            limits = self.limits(item)
        except ValueError as error:
            wrong = str(error)
        if wrong:
            pytest.fail(f"@pytest.mark.ttmem: {wrong}", pytrace=False)
        if self.watcher is None and self.broken is None and (self.all or item.get_closest_marker("ttmem")):
            try:
                self.watcher = Watcher(self.command)
            except (RuntimeError, OSError, ValueError) as error:
                self.broken = str(error)
        if limits and self.broken:
            pytest.fail(f"device memory cannot be measured: {self.broken} (--no-ttmem runs without limits)", pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        if self.watcher and (self.all or item.get_closest_marker("ttmem")):
            self.running = self.tell(lambda: self.watcher.begin(item.nodeid)) is not None
        self.raised = True
        result = yield
        self.raised = False
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        try:
            return (yield)
        finally:
            step = self.tell(self.watcher.end) if self.running else None
            self.running = False
            if step:
                step["raised"] = self.raised
                self.check(step, self.limits(item))

    def check(self, step, limits):
        self.steps.append(step)
        exceeded = over(step, limits)
        if exceeded:
            pytest.fail("\n".join(exceeded), pytrace=False)

    def tell(self, do):
        """The answer; None where ttmem has failed, which is said at the end."""
        try:
            return do()
        except (RuntimeError, OSError, ValueError) as error:
            self.broken, self.watcher = str(error), None
            return None

    def pytest_terminal_summary(self, terminalreporter):
        if self.broken and (self.all or self.steps):
            terminalreporter.section("device memory")
            terminalreporter.line(f"ttmem: {self.broken}")
        if self.steps:
            terminalreporter.section("device memory")
            for line in summary(self.steps):
                terminalreporter.line(line)

    def pytest_unconfigure(self):
        if self.watcher:
            self.watcher.close()
            self.watcher = None


def leaked(step):
    """What a step left, without what a program always keeps."""
    return [left for left in step["left"] if not left.get("kept")]


def peaks(step):
    """The highest peak of each region on any chip."""
    highest = {}
    for peak in step["peaks"]:
        region = peak["region"]
        highest[region] = max(highest.get(region, 0), peak["peak_bytes"])
    return highest


def over(step, limits):
    """Which limits a step exceeds, in words."""
    lines = []
    left = leaked(step)
    total = sum(one["bytes"] for one in left)
    if limits.leaks is not None and total > limits.leaks:
        lines.append(f"left {format_size(total)} allocated, more than limit_leaks = {format_size(limits.leaks)}:")
        for one in left[:10]:
            lines.append(f"  {format_size(one['bytes']):>12}  {one['buffers']} in {one['region']}  {one['name'] or 'unknown code'}")
            lines += [f"                  {call}" for call in one["calls"][1:4]]
        if len(left) > 10:
            lines.append(f"  and {len(left) - 10} more")
        if step["raised"]:
            lines.append(TRACEBACK)
    for region, limit in limits.peak.items():
        peak = peaks(step).get(region, 0)
        if peak > limit:
            place = "L1 in use on a core" if region == "L1" else f"{region} in use on a chip"
            lines.append(f"had {format_size(peak)} of {place}, more than limit_peak = {format_size(limit)}")
    if lines and step["lost"]:
        lines.append(f"{step['lost']} events were lost: the figures may be wrong")
    return lines


def summary(steps, shown=10):
    """The tests that left or used most."""

    def order(step):
        return (-sum(one["bytes"] for one in leaked(step)), -sum(peaks(step).values()))

    yield f"{'left':>12} {'peak DRAM':>12} {'peak L1':>12}  test"
    for step in sorted(steps, key=order)[:shown]:
        highest = peaks(step)
        left = sum(one["bytes"] for one in leaked(step))
        failed = " (failed)" if step["raised"] else ""
        yield (
            f"{format_size(left):>12} {format_size(highest.get('DRAM', 0)):>12} {format_size(highest.get('L1', 0)):>12}  {step['step']}{failed}"
        )
    if len(steps) > shown:
        yield f"and {len(steps) - shown} more tests, which left and used less"
