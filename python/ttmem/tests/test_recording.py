"""Recordings of real programs, in the folder STORIES, read by the program TTMEM."""

import gc
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import threading
import warnings

import pytest

import pandas
import ttmem
from ttmem import child, recording

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
    assert child.printable(hostile) == {"a[2Jb": ["xy\n日本", {"name": "<b>é"}, 1, None]}


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


FAKE = """#!{python}
import os, struct, sys
def frame(kind, text):
    sys.stdout.buffer.write(kind + struct.pack("<I", len(text)) + text)
    sys.stdout.flush()
assert sys.argv[1] == "answer"
{first}
for line in sys.stdin:
    {each}
"""
OPENED = """frame(b"v", b'{"version":"1","bytes":1,"began_ns":1,"began_wall_ns":1,"first_ns":1}')"""


def fake(tmp_path, first=OPENED, each="pass"):
    """A program in place of ttmem."""
    other = tmp_path / "ttmem"
    other.write_text(FAKE.format(python=sys.executable, first=first, each=each))
    other.chmod(0o755)
    return other


@pytest.mark.parametrize(
    "output",
    [b"noise", b"", b"[1]", b"1", b'{"v":1,', b'{"v":2}', b"[" * 100_000, b'{"v":1}\n{"v":1}', b"\377\376", b'{"v":1}',
     b'{"v":1,"time_ns":1,"buffers":{"rows":5,"columns":[{"key":"pid","kind":"int","width":8,"missing":false}]}}',
     b'{"v":1,"time_ns":1,"buffers":{"rows":5,"columns":[{}]}}'],
    ids=["text", "nothing", "list", "number", "cut", "version", "deep", "two", "bytes", "fields", "short", "heads"],
)
def test_output_of_another_program(tmp_path, output):
    (tmp_path / "output").write_bytes(output)
    run = ttmem.open("model.ttmem", fake(tmp_path, each=f'frame(b"o", open("{tmp_path}/output", "rb").read()); frame(b"e", b"0")'))
    for method in (run.peaks, run.holders, run.timeline, run.leaks, run.operations, run.failures, run.advise, run.map, run.at):
        with pytest.raises(ttmem.Error):
            method()
    if output and not output.startswith(b'{"v":1}') and b"columns" not in output:  # which may be events
        with pytest.raises(ttmem.Error, match="log printed no JSON of ttmem"):
            run.json("log")


@pytest.mark.parametrize(
    "first, says",
    [
        ("print('hello')", "of another version than this package"), ("frame(b'v', b'[1]')", "of another version than this package"),
        ("sys.exit('ttmem: unknown command \"answer\"')", "has no command answer: the program is of another version"),
        ("sys.exit('ttmem: no such day')", "^no such day$"), ("os.kill(os.getpid(), 9)", "with status -9"),
    ],
    ids=["text", "list", "older", "error", "killed"],
)
def test_a_program_that_answers_nothing(tmp_path, first, says):
    with pytest.raises(ttmem.Error, match=says):
        ttmem.open("model.ttmem", fake(tmp_path, first))


def test_a_child_that_is_killed(tmp_path):
    run = ttmem.open("model.ttmem", fake(tmp_path, each="os.kill(os.getpid(), 9)"))
    for verb in ("map", "log", "map"):  # each time another one
        with pytest.raises(ttmem.Error, match="ended while it answered, with status -9"):
            run.json(verb)
    run = story("leak")
    [first] = run._children.idle
    first.process.kill()
    first.process.wait()
    assert run.json("report")["v"] == 1  # of another child


def test_one_child_answers_all():
    run = story("leak")
    [first] = run._children.idle
    answers = [run.peaks(), run.at("peak").buffers, run.leaks(), run.peaks()]
    assert answers[0].equals(answers[3])
    with pytest.raises(ttmem.Error):
        run.at("xyz")
    assert run._children.idle == [first]
    events = run.events()
    next(events)
    assert len(run.peaks()) > 0  # while the events go on
    [second] = run._children.idle
    assert second is not first
    events.close()
    assert run._children.idle == [second] and first.process.poll() is not None
    made = []
    threads = [threading.Thread(target=lambda: made.append(run.leaks())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and all(one.equals(answers[2]) for one in made)


def test_the_child_ends():
    with story("leak") as run:
        [closed] = run._children.idle
    assert closed.process.poll() is not None
    with pytest.raises(ttmem.Error, match="leak.ttmem is closed: open it again"):
        run.peaks()
    run = story("leak")
    [collected] = run._children.idle
    del run
    gc.collect()
    assert collected.process.poll() is not None
    left = subprocess.run(
        [sys.executable, "-c", "import sys, ttmem; run = ttmem.open(*sys.argv[1:]); print(run._children.idle[0].process.pid)",
         str(STORIES / "leak.ttmem"), TTMEM],
        capture_output=True, encoding="utf-8", check=True,
    ).stdout
    assert not os.path.exists(f"/proc/{left.strip()}/exe")


def rows(frame):
    """The rows of a frame without absent values."""
    columns = {key: list(frame[key]) for key in frame}
    absent = {key: list(frame[key].isna()) for key in frame}
    return [{key: columns[key][i] for key in columns if not absent[key][i]} for i in range(len(frame))]


MOMENTS = pytest.mark.parametrize(
    "name, moment",
    [
        ("leak", "peak"), ("leak", "token#20"), ("peak", "peak"), ("mesh", "peak"), ("late", "peak"), ("inference", "end"), ("killed", "failure"),
        ("many", "end"),
    ],  # fmt: skip
)


def dumped(name, moment):
    """What ttmem dump says itself."""
    return json.loads(
        subprocess.run([TTMEM, "dump", STORIES / f"{name}.ttmem", "--json", f"--at={moment}"], capture_output=True, check=True).stdout
    )


@MOMENTS
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_columns_are_the_rows_of_the_document(name, moment):
    run, document = story(name), dumped(name, moment)
    assert run.json("dump", at=moment) == document
    state = run.at(moment)
    assert state.time_ns == document["time_ns"]
    tuples = ("devices", "callers")
    for frame, key in ((state.buffers, "buffers"), (state.circular_buffers, "statics")):
        assert rows(frame) == [{k: tuple(v) if k in tuples else v for k, v in one.items()} for one in document[key]]


@MOMENTS
@pytest.mark.parametrize("equal_rows", [1 << 16, 3])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_arrow(name, moment, equal_rows, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr(ttmem.columns, "EQUAL_ROWS", equal_rows)
    table = story(name).at(moment).arrow()
    assert isinstance(table, pyarrow.Table)
    table.validate(full=True)
    texts = ("stack", "cores")
    assert [{k: v for k, v in one.items() if v is not None} for one in table.to_pylist()] == [
        {k: json.dumps(v) if k in texts else v for k, v in one.items()} for one in dumped(name, moment)["buffers"]
    ]


def test_seconds_and_mib():
    plain, run = story("peak"), ttmem.open(STORIES / "peak.ttmem", TTMEM, units=True)
    first = run.metadata["first_ns"]
    peaks = run.peaks()
    assert list(peaks.columns)[2:6] == ["time_ns", "time_s", "bytes", "mib"]
    assert (peaks.mib * (1 << 20) == peaks.bytes).all()
    assert ((peaks.time_s * 1e9 + first - peaks.time_ns).abs() < 100).all()
    assert peaks[plain.peaks().columns].equals(plain.peaks())
    buffers = run.buffers("peak", region="DRAM")
    assert (buffers.allocated_mib * (1 << 20) == buffers.allocated_bytes).all()
    assert (buffers.age_s * 1e9 - buffers.age_ns).abs().max() < 100 and "mib_per_bank" in buffers
    assert run.at(f"{peaks.time_s.max() + 1e-6:.6f}s").time_ns >= peaks.time_ns.max()


def test_callers_in_names():
    run = ttmem.open(STORIES / "leak.ttmem", TTMEM, callers=True)
    plain = story("leak").buffers("peak")
    buffers = run.buffers("peak")
    for name, with_callers, callers in zip(plain.name, buffers.name, plain.callers):
        assert with_callers == " ← ".join([name, *callers]) if isinstance(callers, tuple) else name
    assert any(" ← " in name for name in run.holders().name)


def test_some_columns():
    buffers = story("leak").buffers("peak", columns=["name", "allocated_bytes"])
    assert list(buffers.columns) == ["name", "allocated_bytes"]
    assert buffers.equals(story("leak").buffers("peak")[["name", "allocated_bytes"]])
    with pytest.raises(ttmem.Error, match="no column nome; there are pid, "):
        story("leak").buffers("peak", columns=["nome"])


def test_metadata_and_report():
    run = story("leak")
    report = run.report()
    assert report == run.json("report")
    about = run.metadata
    assert about["file_bytes"] == (STORIES / "leak.ttmem").stat().st_size and about["ttmem_version"]
    assert about["began_wall_ns"] == report["began_wall_ns"] and about["began"].timestamp() == pytest.approx(about["began_wall_ns"] / 1e9)


def test_map():
    run = story("peak")
    addresses = run.map(at="peak")
    assert set(addresses.kind) <= {"buffer", "hole", "static"}
    buffers = addresses[addresses.kind == "buffer"]
    assert len(buffers) == sum(len(one["blocks"]) for one in run.json("map", at="peak")["regions"]) > 0
    for _, part in addresses.groupby(["devices", "region"]):
        assert part.address.is_monotonic_increasing


def test_diff():
    leak, peak = story("leak"), story("peak")
    difference = leak.diff(peak, by="op")
    assert difference.equals(leak.diff(STORIES / "peak.ttmem", by="op"))
    assert (difference.b_bytes - difference.a_bytes == difference.change_bytes).all()
    assert len(leak.diff(leak)) == 0
    with pytest.raises(ttmem.Error, match="there is no such file: ./--by"):
        leak.diff("--by")


def test_pictures():
    pytest.importorskip("matplotlib").use("agg")
    run = story("peak")
    figure = run.plot()
    assert len(figure.axes) == len(run.peaks())
    figure = run.plot_peak(most=2)
    assert len(figure.axes) == len(run.peaks())
    assert all(len(axes.patches) <= 3 for axes in figure.axes)
    with pytest.raises(ttmem.Error, match="nothing to draw"):
        run.plot(chip=0, region="TRACE")


def test_what_is_not_installed(monkeypatch):
    for name in ("matplotlib", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ttmem.Error, match="pip install matplotlib"):
        story("leak").plot()
    with pytest.raises(ttmem.Error, match="pip install pyarrow"):
        story("leak").at().arrow()


def test_a_recording_that_grows(tmp_path):
    whole, file = (STORIES / "leak.ttmem").read_bytes(), tmp_path / "grows.ttmem"
    file.write_bytes(whole[:-10])
    run = ttmem.open(file, TTMEM)
    for _ in range(2):  # the second answer is kept from the first
        with pytest.warns(UserWarning, match="cut short|no end"):
            before = run.json("report")
    file.write_bytes(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.json("report")["time_ns"] >= before["time_ns"]
        assert len(run.json("log")) > 0
    file.unlink()
    with pytest.raises(ttmem.Error, match="there is no such file: .*grows.ttmem"):
        run.json("report", pid=1)


def test_a_recording_of_another_version(tmp_path):
    whole, file = bytearray((STORIES / "leak.ttmem").read_bytes()), tmp_path / "newer.ttmem"
    whole[len(b"\x93TTMEM\r\n")] += 1
    file.write_bytes(whole)
    with pytest.raises(ttmem.Error, match="made by a newer ttmem .*: install a newer one") as failed:
        ttmem.open(file, TTMEM)
    assert "\n" not in str(failed.value)


def test_a_damaged_recording(tmp_path):
    whole, file = bytearray((STORIES / "leak.ttmem").read_bytes()), tmp_path / "damaged.ttmem"
    whole[len(whole) // 2] ^= 0xFF
    file.write_bytes(whole)
    with pytest.warns(UserWarning, match="damaged") as warned:
        assert len(list(ttmem.open(file, TTMEM).events())) > 0
    assert all("\n" not in str(one.message) for one in warned) and warned[0].filename == __file__


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
