"""Recordings of real programs, in the folder STORIES, read by the program TTMEM."""

import html.parser
import json
import os
import pathlib
import subprocess
import sys

import pytest

import ttmem
from ttmem import recording

STORIES = pathlib.Path(os.environ["STORIES"])
TTMEM = os.environ["TTMEM"]
SCHEMA = json.loads(pathlib.Path(os.environ["SCHEMA"]).read_text())["$defs"]


def story(name):
    return ttmem.open(STORIES / f"{name}.ttmem", TTMEM)


def test_leaks():
    leaks = story("leak").leaks()
    assert list(leaks["name"]) == ["story_leak.py:21 forward · ttnn.log"]
    assert leaks.loc[0, "bytes"] == 30 * 24576
    assert leaks["bytes"].dtype == "Int64"
    assert leaks.loc[0, "devices"] == (0,)
    between = story("leak").leaks(from_="token#5", to="token#25")
    assert between["count"].sum() == 20


def test_the_state_at_a_moment():
    run = story("leak")
    peaks = run.peaks().set_index("region")
    at_peak = run.at("peak")
    dram = at_peak.buffers[at_peak.buffers.region == "DRAM"]
    assert dram.allocated_bytes.sum() == peaks.loc["DRAM", "bytes"]
    assert len(at_peak.circular_buffers) > 0
    early, late = run.at("token#10"), run.at("token#20")
    assert early.time_ns < late.time_ns
    assert len(late.buffers) > len(early.buffers)
    assert set(run.at("token#10", region=["L1", "CB"]).buffers.region) <= {"L1"}
    assert len(run.at("end").buffers) == 0


def test_peaks():
    run = story("peak")
    peaks = run.peaks().set_index("region")
    assert (peaks["bytes"] <= peaks["capacity_bytes"]).all()
    holders = run.holders()
    assert holders.static_kind.notna().any()  # of programs
    assert holders.groupby("region")["bytes"].sum().to_dict() == peaks["bytes"].to_dict()
    timeline = run.timeline()
    assert timeline.groupby("region").max_bytes.max().to_dict() == peaks["bytes"].to_dict()
    assert timeline.time_ns.is_monotonic_increasing or len(peaks) > 1
    assert set(run.peaks(region="L1").region) == {"L1"}
    # times in ns are more than floating-point numbers can count
    assert run.peaks().time_ns.dtype == "Int64"


def test_operations():
    operations = story("inference").operations()
    assert len(operations) == 12
    assert operations.peak_headroom_bytes.is_monotonic_increasing
    assert "ttnn.softmax" in set(operations.op)
    assert (operations.peak_bytes + operations.peak_headroom_bytes == operations.peak_capacity_bytes).all()


def test_failures():
    failures = story("killed").failures()
    assert len(failures) == story("killed").json("report")["failure_count"]  # all, and not only the newest
    assert failures.loc[0, "reason"] == "out_of_memory"
    assert bool(failures.loc[0, "too_large"])
    assert (failures.held_bytes_per_bank.dropna() >= 0).all()


def test_advise():
    advice = story("late").advise()
    assert list(advice["name"]) == ["model.py:10 call_10 · ttnn.empty"]
    [line] = advice.to_dict("records")
    assert line["last_use"] == "model.py:20 call_20 · ttnn.add"
    assert line["peak_bytes"] - line["freed_peak_bytes"] == line["bytes"] == 64 * 2048
    assert line["freed_proved"] and line["devices"] == (0,)
    assert story("late").json("advise")["limits"] == []
    assert len(story("leak").advise()) == 0  # it is not recorded what its programs use


@pytest.mark.parametrize("name", ["leak", "mesh"])
def test_frames_have_the_same_first_columns(name):
    run = story(name)
    state = run.at("peak")
    for frame, columns in [
        (state.buffers, recording.BUFFERS), (state.circular_buffers, recording.CIRCULAR_BUFFERS),
        (run.peaks(), recording.PEAKS), (run.holders(), recording.HOLDERS), (run.timeline(), recording.TIMELINE),
        (run.leaks(), recording.LEAKS), (run.operations(), recording.OPERATIONS), (run.failures(), recording.FAILURES),
        (run.advise(), recording.ADVICE),
    ]:
        assert list(frame.columns)[: len(columns)] == columns
        assert not frame[columns].isna().any().any()


def test_empty_frames_have_the_types_of_others():
    leak, killed, inference, late = story("leak"), story("killed"), story("inference"), story("late")
    state = leak.at("peak")
    for full, columns in [
        (state.buffers, recording.BUFFERS), (state.circular_buffers, recording.CIRCULAR_BUFFERS),
        (leak.peaks(), recording.PEAKS), (leak.holders(), recording.HOLDERS), (leak.timeline(), recording.TIMELINE),
        (leak.leaks(), recording.LEAKS), (inference.operations(), recording.OPERATIONS), (killed.failures(), recording.FAILURES),
        (late.advise(), recording.ADVICE),
    ]:
        assert len(full) > 0
        assert recording.frame([], columns).dtypes.to_dict() == full.dtypes[columns].to_dict()
    end = leak.at("end").buffers
    assert len(end.groupby("name").allocated_bytes.sum().nlargest(10)) == 0


@pytest.mark.parametrize(
    "columns, document, without",
    [
        (recording.BUFFERS, "buffer", ()), (recording.CIRCULAR_BUFFERS, "static", ()),
        (recording.PEAKS, "region_peak", ("groups", "holders", "timeline")), (recording.LEAKS, "survivors", ()),
        (recording.OPERATIONS, "operation", ()), (recording.FAILURES, "failure", ()),
    ],
)
def test_the_columns_are_those_of_the_schema(columns, document, without):
    required = []
    for name in SCHEMA[document]["required"]:
        inner = SCHEMA[document]["properties"][name]
        if inner.get("type") == "object":
            required += [f"{name}_{key}" for key in inner["required"]]
        elif name not in without:
            required.append(name)
    assert sorted(columns) == sorted(required)


def test_names_reach_no_terminal():
    hostile = {"a\x1b[2Jb": ["x\u202ey\n日本\x00\x9b", {"name": "<b>\x07é"}, 1, None]}
    assert recording.printable(hostile) == {"a[2Jb": ["xy\n日本", {"name": "<b>é"}, 1, None]}


def test_any_document():
    assert story("leak").json("map", at="peak", region="DRAM")["v"] == 1


def test_events():
    run = story("leak")
    events = run.json("log")
    assert events == list(run.events())
    assert events[0]["kind"] == "process_start" and events[-1]["kind"] == "process_exit"
    times = [event["time_ns"] for event in events]
    assert times == sorted(times)
    live = {event["buffer_id"] for event in events if event["kind"] == "alloc"}
    assert live == {event["buffer_id"] for event in events if event["kind"] == "free"}
    chosen = run.json("log", kind=["alloc"], from_="token#5", to="token#8")
    assert chosen and {event["kind"] for event in chosen} == {"alloc"}
    assert run.json("log", grep="no such line") == []  # no event, and no error
    for event in run.events(kind="alloc"):
        break  # the others are not read
    assert event["kind"] == "alloc"
    with pytest.raises(ttmem.Error, match="no mark xyz in"):
        run.json("log", from_="xyz")


def test_mistakes(tmp_path, monkeypatch):
    with pytest.raises(ttmem.Error, match="there is no such file: none.ttmem"):
        ttmem.open("none.ttmem", TTMEM)
    with pytest.raises(ttmem.Error, match="no /none/ttmem: install ttmem"):
        ttmem.open(STORIES / "leak.ttmem", "/none/ttmem")
    with pytest.raises(ttmem.Error, match="no mark xyz in"):
        story("leak").at("xyz")
    with pytest.raises(ttmem.Error, match="unknown flag --frob"):
        story("leak").peaks(frob=1)
    noise = tmp_path / "noise.ttmem"
    noise.write_bytes(b"noise" * 1000)
    with pytest.raises(ttmem.Error, match="is not a ttmem recording"):
        ttmem.open(noise, TTMEM)
    # a name is no flag, and a file that was cut short is read as far as it goes
    monkeypatch.chdir(tmp_path)
    cut = pathlib.Path("--help.ttmem")
    cut.write_bytes((STORIES / "leak.ttmem").read_bytes()[:-10])
    with pytest.warns(UserWarning, match="cut short|no end"):
        assert ttmem.open(cut, TTMEM).json("report")["v"] == 1


@pytest.mark.parametrize(
    "output",
    ["noise", "", "[1]", "1", '{"v":1,', '{"v":2}', "[" * 100_000, '{"v":1}\n{"v":1}', "\\377\\376", '{"v":1}'],
    ids=["text", "nothing", "list", "number", "cut", "version", "deep", "two", "bytes", "fields"],
)
def test_output_of_another_program(tmp_path, output):
    (tmp_path / "output").write_text(output)
    other = tmp_path / "ttmem"
    # the report is read when the recording is opened; the others are this program's
    other.write_text(f'#!/bin/sh\n[ "$1" = report ] && echo \'{{"v":1}}\' || printf "$(cat {tmp_path}/output)"\n')
    other.chmod(0o755)
    run = ttmem.open("model.ttmem", other)
    for method in (run.peaks, run.holders, run.timeline, run.leaks, run.operations, run.failures, run.advise, run.at):
        with pytest.raises(ttmem.Error):
            method()
    if output not in ("", '{"v":1}', '{"v":1}\n{"v":1}'):  # which may be events
        with pytest.raises(ttmem.Error, match="log printed no JSON of ttmem"):
            run.json("log")


def test_a_command_that_is_killed(tmp_path):
    other = tmp_path / "ttmem"
    other.write_text('#!/bin/sh\necho \'{"v":1}\'\n[ "$1" = report ] || kill -9 $$\n')
    other.chmod(0o755)
    run = ttmem.open("model.ttmem", other)
    for verb in ("log", "map"):
        with pytest.raises(ttmem.Error, match=f"{verb} failed with status -9"):
            run.json(verb)


class Elements(html.parser.HTMLParser):
    """The elements of a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_a_notebook_shows_the_page():
    from IPython.core.formatters import DisplayFormatter

    data, _ = DisplayFormatter().format(story("leak"))
    assert data["text/plain"].startswith("ttmem.open(")
    [(tag, attributes)] = Elements(data["text/html"]).found
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"  # names of a traced program reach nothing
    page = subprocess.run(
        [TTMEM, "html", STORIES / "leak.ttmem", "-o", "-"], capture_output=True, encoding="utf-8", check=True
    ).stdout
    assert attributes["srcdoc"] == page


def test_pytest_does_not_load_pandas():
    subprocess.run([sys.executable, "-c", "import sys, ttmem.pytest_plugin; assert 'pandas' not in sys.modules"], check=True)


def test_pip_installs_the_pytest_plugin(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("ttmem")
