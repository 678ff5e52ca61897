"""Limits the device memory that a test may leak or use at its peak.

A test with a limit is marked:

    @pytest.mark.ttmem(limit_leaks="64 KiB", limit_peak={"L1": "512 KiB"})
    def test_attention(device): ...

or limits of all tests are in pytest.ini, and `pytest --ttmem` measures every test. What a test
leaves is what it allocated between its call and the end of its teardown and did not free; its peak is
the highest use of a region of one chip meanwhile, of L1 on the fullest core. `ttmem steps` measures
both from outside: neither the tested code nor ttnn is changed.
"""

import json
import re

import pytest

from ttmem.live import REGIONS, TIMEOUT, Error, format_size, leaked, lost_events, watcher

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
OPTIONS = ("limit_leaks", "limit_peak")
TRACEBACK = "the test failed: its traceback keeps variables, which may hold some of this memory"


def parse_size(text):
    """Bytes of a size such as 4096, "64 KiB" or "1.5MiB"; ValueError for another one."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text) if isinstance(text, str) else None
    if match is None or match.group(2).upper() not in UNITS:
        raise ValueError(f"{text!r} is not a size: give bytes, or one such as '64 KiB'")
    return int(float(match.group(1)) * UNITS[match.group(2).upper()])


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


def pytest_addoption(parser):
    group = parser.getgroup("ttmem", "device memory of Tenstorrent chips")
    group.addoption("--ttmem", action="store_true", help="measure every test, not only those with limits")
    group.addoption("--no-ttmem", action="store_true", help="measure no test, and ignore limits")
    group.addoption("--ttmem-command", default="ttmem", metavar="PATH", help="the ttmem to run (default: ttmem)")
    parser.addini(
        "ttmem_lost",
        "fail (the default) or report: what happens to a test with a limit if its events were lost",
        default="fail",
    )
    parser.addini("ttmem_timeout", f"seconds to wait for an answer of ttmem (default: {TIMEOUT})", default=str(TIMEOUT))
    parser.addini("ttmem_limit_leaks", "limit_leaks of every test, such as 64 KiB", default="")
    parser.addini("ttmem_limit_peak", "limit_peak of every test: a line such as L1: 512 KiB for each region", type="linelist")


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "ttmem(limit_leaks=SIZE, limit_peak={REGION: SIZE}): fail if the test leaves more device memory, "
        "or uses more on a chip (L1: on a core)",
    )
    if not config.getoption("--no-ttmem"):
        try:
            limits = ini_limits(config)
        except ValueError as error:
            raise pytest.UsageError(f"ttmem limits: {error}") from None
        if config.getini("ttmem_lost") not in ("fail", "report"):
            raise pytest.UsageError(f"ttmem_lost = {config.getini('ttmem_lost')}: choose fail or report")
        try:
            timeout = float(config.getini("ttmem_timeout"))
            if not 0 < timeout < 1e6:
                raise ValueError
        except ValueError:
            raise pytest.UsageError(f"ttmem_timeout = {config.getini('ttmem_timeout')}: give seconds") from None
        config.pluginmanager.register(Plugin(config, limits, timeout), "ttmem-plugin")


class Plugin:
    def __init__(self, config, limits, timeout):
        self.all = config.getoption("--ttmem") or bool(limits)
        self.of_all = limits
        self.command = config.getoption("--ttmem-command")
        self.timeout = timeout
        self.lost_fails = config.getini("ttmem_lost") == "fail"
        self.watcher = None
        self.broken = None  # why nothing can be measured
        self.begun = False  # a step was to begin
        self.id = None  # of the step
        self.raised = False  # the test ended by an exception
        self.steps = []
        self.missing = []  # why steps of a worker of pytest-xdist are missing

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
                self.watcher = watcher(
                    command=self.command, timeout=self.timeout, too_late=" (ttmem_timeout in pytest.ini)",
                    no_command="install ttmem, or give its path with --ttmem-command",
                )
            except (Error, OSError, ValueError) as error:
                self.broken = str(error)
        if limits and self.broken:
            self.fail_unmeasured()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        if self.watcher and (self.all or item.get_closest_marker("ttmem")):
            self.begun = True
            self.id = self.tell(lambda: self.watcher.begin(item.nodeid))
        self.raised = True
        result = yield
        self.raised = False
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        try:
            return (yield)
        finally:
            begun, self.begun = self.begun, False
            if begun:
                limits = self.limits(item)
                step = self.tell(lambda: self.watcher.end(self.id)) if self.watcher else None
                if step:
                    self.check(step, limits)
                elif limits:
                    self.fail_unmeasured()

    def check(self, step, limits):
        step["raised"] = self.raised
        self.steps.append(step)
        wrong = over(step, limits)
        if limits and step["lost"] and (wrong or self.lost_fails):
            wrong.append(f"figures not reliable: {lost_events(step['lost'])}")
            if len(wrong) == 1:
                wrong.append("the known figures exceed no limit (ttmem_lost = report lets the test pass)")
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)

    def fail_unmeasured(self):
        pytest.fail(f"device memory cannot be measured: {self.broken} (--no-ttmem runs without limits)", pytrace=False)

    def tell(self, do):
        """The answer; None where ttmem has failed, which is said at the end."""
        try:
            return do()
        except (Error, OSError, ValueError) as error:
            self.broken = str(error)
            self.watcher.close(0)
            self.watcher = None
            return None

    def pytest_sessionfinish(self, session):
        output = getattr(session.config, "workeroutput", None)
        if output is not None:  # a worker of pytest-xdist: the controller prints
            output["ttmem"] = json.dumps([self.steps, self.broken])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        """The controller takes the steps of a worker of pytest-xdist."""
        output = getattr(node, "workeroutput", {}).get("ttmem")
        if output is None:
            self.missing.append(f"worker {node.gateway.id} ended without its figures")
            return
        steps, broken = json.loads(output)
        self.steps += steps
        self.broken = self.broken or broken

    def pytest_terminal_summary(self, terminalreporter):
        said = [f"ttmem: {self.broken}"] if self.broken else []
        if self.all or self.steps:
            said += [f"ttmem: {why}" for why in self.missing]
        if self.steps:
            said += summary(self.steps)
        if said:
            terminalreporter.section("device memory")
        for line in said:
            terminalreporter.line(line)

    def pytest_unconfigure(self):
        if self.watcher:
            self.watcher.close()
            self.watcher = None


def peaks(step):
    """The highest peak of each region on any chip."""
    highest = {}
    for peak in step["peaks"]:
        region = peak["region"]
        highest[region] = max(highest.get(region, 0), peak["peak_bytes"])
    return highest


def at_least(step, region):
    """Whether a peak may have been higher: programs ran that the library does not report."""
    return any(peak["region"] == region and peak.get("at_least") for peak in step["peaks"])


def apart(size, limit):
    """A size and the limit that it exceeds as texts that differ."""
    texts = format_size(size), format_size(limit)
    return texts if texts[0] != texts[1] else (f"{size} B", f"{limit} B")


def over(step, limits):
    """Which limits a step exceeds, in words."""
    lines = []
    left = leaked(step)
    total = sum(one["bytes"] for one in left)
    if limits.leaks is not None and total > limits.leaks:
        lines.append("{} unfreed exceeds limit_leaks = {}:".format(*apart(total, limits.leaks)))
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
            least = " at least" if at_least(step, region) else ""
            lines.append(f"{region} peak{least} " + "{} exceeds limit_peak = {}".format(*apart(peak, limit)))
    return lines


def summary(steps, shown=10):
    """The tests that left or used most, and those whose figures are not reliable."""

    def order(step):
        return (-sum(one["bytes"] for one in leaked(step)), -sum(peaks(step).values()))

    yield f"{'left':>12} {'peak DRAM':>12} {'peak L1':>12}  test"
    steps = sorted(steps, key=order)
    listed = steps[:shown] + [step for step in steps[shown:] if step["lost"]][:shown]
    for step in listed:
        highest = peaks(step)
        left = sum(one["bytes"] for one in leaked(step))
        failed = " (failed)" if step["raised"] else ""
        lost = f" (figures not reliable: {lost_events(step['lost'])})" if step["lost"] else ""
        l1 = (">= " if at_least(step, "L1") else "") + format_size(highest.get("L1", 0))
        yield f"{format_size(left):>12} {format_size(highest.get('DRAM', 0)):>12} {l1:>12}  {step['step']}{failed}{lost}"
    if len(steps) > len(listed):
        yield f"and {len(steps) - len(listed)} more tests, which left and used less"
    unreliable = [step for step in steps if step["lost"]]
    if unreliable:
        yield f"figures not reliable: {lost_events(sum(step['lost'] for step in unreliable))} in {len(unreliable)} of {len(steps)} tests"
