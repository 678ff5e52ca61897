"""Limits the device memory that a test may leak or use at its peak.

A test with a limit is marked:

    @pytest.mark.ttmem(limit_leaks="64 KiB", limit_peak={"L1": "512 KiB"})
    def test_attention(device): ...

or limits of all tests are in pytest.ini, and `pytest --ttmem` measures every test. What a test
leaves is what it allocated between its call and the end of its teardown and did not free; its peak is
the highest use of a region of one chip meanwhile, of L1 on the fullest core. `ttmem steps` measures
both from outside: neither the tested code nor ttnn is changed. `pytest --ttmem-baseline FILE` compares both with those of
an earlier run.
"""

import json
import os
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


def parse_tolerance(text):
    """How much a figure may exceed one of a baseline, as a function of that: a size, or a share such as 5%."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", text)
    if match:
        return lambda size: size * float(match.group(1)) / 100
    size = parse_size(text)
    return lambda _: size


class Baseline:
    """What each test left and used at its peak in an earlier run."""

    KIND = "pytest --ttmem-baseline"

    def __init__(self, path, update, tolerance):
        self.path, self.update, self.tolerance = path, update, tolerance
        self.tests = {}
        if update and not os.access(os.path.dirname(path), os.W_OK):
            raise ValueError(f"{path}: cannot be written")
        if update and not os.path.exists(path):
            return
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            if document["kind"] != self.KIND or document["v"] != 1:
                raise ValueError
            self.tests = document["tests"]
            for one in self.tests.values():
                sum(one["left"].values()) + sum(peak["bytes"] for peak in one["peaks"].values())
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file: --ttmem-update-baseline makes it") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: {getattr(error, 'strerror', None) or 'no baseline of this version'}") from None

    @staticmethod
    def of(step):
        """What the file has of a test. Its lines have no numbers, which edits change."""
        highest = {
            region: {"bytes": size, "lines": by_line(peak_lines(step, region))} for region, size in peaks(step).items() if size
        }
        return {"left": by_line(leaked(step)), "peaks": highest}

    def key(self, item):
        """The name of a test in the file, from its folder on: that of pytest depends on the arguments."""
        _, _, name = item.nodeid.partition("::")
        return f"{os.path.relpath(item.path, os.path.dirname(self.path))}::{name}"

    def has(self, step):
        return not self.update and step["key"] in self.tests

    def over(self, step):
        """What a test left or used more than before, in words."""
        if not self.has(step) or step["raised"]:
            return []
        before, lines = self.tests[step["key"]], []
        total, was = sum(one["bytes"] for one in leaked(step)), sum(before["left"].values())
        if total > was + self.tolerance(was):
            lines.append("{} unfreed exceeds the baseline's {}:".format(*apart(total, was)))
            lines += left_lines(grown(leaked(step), before["left"]))
        for region, peak in peaks(step).items():
            old = before["peaks"].get(region, {"bytes": 0, "lines": {}})
            was = old["bytes"]
            if peak > was + self.tolerance(was):
                lines.append(f"{region} peak " + "{} exceeds the baseline's {}".format(*apart(peak, was)))
                lines += [peak_line(one) for one in grown(peak_lines(step, region), old["lines"])]
        return lines

    def write(self, steps):
        """Writes the tests that ran and may be relied on, and keeps the others. It returns what there is to say."""
        ran = [step for step in steps if not step["raised"] and not step["lost"]]
        self.tests.update({step["key"]: self.of(step) for step in ran})
        document = {"v": 1, "kind": self.KIND, "tests": dict(sorted(self.tests.items()))}
        with open(self.path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, ensure_ascii=False)
            file.write("\n")
        os.replace(self.path + ".tmp", self.path)
        left_out = len(steps) - len(ran)
        return f"ttmem: {self.path} has {len(ran)} tests of this run" + (
            f", without {left_out} that failed or lost events" if left_out else ""
        )


def line_key(line):
    """A line in a baseline: what it left has a region, what it had at a peak may be a program's own."""
    return "  ".join(filter(None, (line.get("region"), line.get("static"), re.sub(":[0-9]+", "", line["name"]))))


def by_line(lines):
    sums = {}
    for one in lines:
        sums[line_key(one)] = sums.get(line_key(one), 0) + one["bytes"]
    return dict(sorted(sums.items()))


def grown(lines, before):
    """The lines that have more than in a baseline."""
    now = by_line(lines)
    return [one for one in lines if now[line_key(one)] > before.get(line_key(one), 0)]


def pytest_addoption(parser):
    group = parser.getgroup("ttmem", "device memory of Tenstorrent chips")
    group.addoption("--ttmem", action="store_true", help="measure every test, not only those with limits")
    group.addoption("--no-ttmem", action="store_true", help="measure no test, and ignore limits")
    group.addoption("--ttmem-command", default="ttmem", metavar="PATH", help="the ttmem to run (default: ttmem)")
    group.addoption(
        "--ttmem-baseline", metavar="FILE", help="measure every test, and fail those that leave or use more than in FILE"
    )
    group.addoption("--ttmem-update-baseline", action="store_true", help="write what the tests leave and use to that FILE")
    parser.addini("ttmem_tolerance", "what a test may leave or use more than in the baseline, such as 64 KiB or 5%%", default="0")
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
        config.pluginmanager.register(Plugin(config, limits, timeout, baseline_of(config)), "ttmem-plugin")


def baseline_of(config):
    path, update = config.getoption("--ttmem-baseline"), config.getoption("--ttmem-update-baseline")
    if not path:
        if update:
            raise pytest.UsageError("--ttmem-update-baseline needs --ttmem-baseline FILE")
        return None
    try:
        tolerance = parse_tolerance(config.getini("ttmem_tolerance"))
    except ValueError as error:
        raise pytest.UsageError(f"ttmem_tolerance: {error}, or a share such as 5%") from None
    try:
        return Baseline(os.path.join(str(config.invocation_params.dir), path), update, tolerance)
    except ValueError as error:
        raise pytest.UsageError(f"--ttmem-baseline {error}") from None


class Plugin:
    def __init__(self, config, limits, timeout, baseline):
        self.baseline = baseline
        self.all = config.getoption("--ttmem") or bool(limits) or baseline is not None
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
        if (limits or self.baseline) and self.broken:
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
                    file, line, _ = item.location
                    if self.baseline:
                        step["key"] = self.baseline.key(item)
                    step["place"] = [str(item.config.rootpath / file), (line or 0) + 1]
                    self.check(step, limits)
                elif limits or self.baseline:
                    self.fail_unmeasured()

    def check(self, step, limits):
        step["raised"] = self.raised
        self.steps.append(step)
        wrong = step["wrong"] = over(step, limits)
        if self.baseline:
            wrong += self.baseline.over(step)
        if (limits or self.baseline and self.baseline.has(step)) and step["lost"] and (wrong or self.lost_fails):
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
        if self.baseline and self.baseline.update:
            if self.missing or self.broken:
                said.append(f"ttmem: {self.baseline.path} is not written: tests were not measured")
            else:
                said.append(self.baseline.write(self.steps))
        elif self.baseline:
            new = sum(step["key"] not in self.baseline.tests for step in self.steps)
            if new:
                said.append(f"not in the baseline: {new} tests; --ttmem-update-baseline adds them")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            said += [annotation(step) for step in self.steps if step["wrong"]]
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


def peak_lines(step, region):
    """What the highest peak of a region was made of: the largest lines."""
    of_region = [peak for peak in step["peaks"] if peak["region"] == region]
    return max(of_region, key=lambda peak: peak["peak_bytes"]).get("lines", []) if of_region else []


def peak_line(line):
    kind = f"  {line['static']}" if line.get("static") else ""
    return f"  {format_size(line['bytes']):>12}  {line['buffers']}  {line['name'] or 'unknown code'}{kind}"


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
        lines += left_lines(left)
        if step["raised"]:
            lines.append(TRACEBACK)
    for region, limit in limits.peak.items():
        peak = peaks(step).get(region, 0)
        if peak > limit:
            least = " at least" if at_least(step, region) else ""
            lines.append(f"{region} peak{least} " + "{} exceeds limit_peak = {}".format(*apart(peak, limit)))
            lines += [peak_line(one) for one in peak_lines(step, region)[:5]]
    return lines


def left_lines(left, shown=10):
    """Lines of memory that a test left."""
    lines = []
    for one in left[:shown]:
        lines.append(f"  {format_size(one['bytes']):>12}  {one['buffers']} in {one['region']}  {one['name'] or 'unknown code'}")
        lines += [f"                  {call}" for call in one["calls"][1:4]]
    if len(left) > shown:
        lines.append(f"  and {len(left) - shown} more")
    return lines


def annotation(step):
    """A command to GitHub's runner, which shows at the test what is wrong. It is escaped as GitHub's own toolkit does."""

    def data(text):
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text):
        return data(text).replace(":", "%3A").replace(",", "%2C")

    file, line = step["place"]
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if workspace and not os.path.relpath(file, workspace).startswith(".."):
        file = os.path.relpath(file, workspace)
    return f"::error file={value(file)},line={line},title={value(step['step'])}::{data(chr(10).join(step['wrong']))}"


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
