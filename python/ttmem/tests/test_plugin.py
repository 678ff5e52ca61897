"""The pytest plugin beside a made-up `ttmem steps`: what it does with each answer."""

import json
import os
import re
import subprocess
import sys

import pytest

# A `ttmem steps` that answers what the name of a test says: lost_3 has three lost events.
STEPS = """#!{python}
import json, os, re, sys, time

def answer(**fields):
    print(json.dumps(fields), flush=True)

answer(v=1, ready=True)
for line in sys.stdin:
    verb, _, rest = line.strip().partition(" ")
    if verb == "begin":
        name = rest
        if "hangs" in name:
            time.sleep(1000)
        if "ends" in name:
            sys.exit("ttmem: it ended")
        if "noise" in name:
            print("noise", flush=True)
            continue
        answer(began=name, id=1)
        continue
    if verb == "reset":
        answer(peaks=[], lost=0)
        continue
    figure = lambda word: int((re.search(word + "_([0-9]+)", name) or [0, 0])[1])
    left, peak = figure("left"), figure("peak")
    lines = [dict(bytes=peak - 10, buffers=2, name="m.py:9 g"), dict(bytes=10, buffers=1, name="m.py:8 g", static="scratchpad")] if "lines" in name else []
    answer(
        step=name, begin_ns=1, end_ns=2, lost=figure("lost"),
        peaks=[dict(device=0, region="DRAM", peak_bytes=peak, lines=lines), dict(device=1, region="DRAM", peak_bytes=1), dict(device=0, region="L1", peak_bytes=peak, at_least="least" in name)],
        left=[dict(region="DRAM", bytes=left, buffers=1, name=f"m.py:{left} f", calls=[])] if left else [], failures=[],
    )
"""
LIMIT = "@pytest.mark.ttmem(limit_leaks=100, limit_peak={'DRAM': '1 KiB'})"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs tests of these names beside the made-up ttmem, and returns the text and the exit status."""
    command = tmp_path / "ttmem"
    command.write_text(STEPS.replace("{python}", sys.executable))
    command.chmod(0o755)

    def run(limited, *args, others=()):
        text = "import pytest\n" + "".join(f"{LIMIT}\ndef test_{name}(): pass\n" for name in limited)
        (tmp_path / "test_it.py").write_text(text + "".join(f"def test_{name}(): pass\n" for name in others))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--ttmem-command", command, *args, "test_it.py"],
            cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=300,  # the made-up ttmem hangs for longer
        )
        assert "Warning" not in done.stdout
        return done.stdout + done.stderr, done.returncode

    return run


def failed(text):
    """The tests with an error, by the list of them that pytest -v prints."""
    return set(re.findall(r"::test_(\w+) ERROR", text)) | set(re.findall(r"ERROR test_it.py::test_(\w+)", text))


def test_a_limit_does_not_pass_on_lost_events(run):
    text, status = run(["good", "lost_1", "lost_3_peak_2048"], "--ttmem", others=["free_lost_2"])
    assert status == 1
    assert failed(text) == {"lost_1", "lost_3_peak_2048"}
    assert "figures not reliable: 1 event lost\nthe known figures exceed no limit" in text
    assert "DRAM peak 2.0 KiB exceeds limit_peak = 1.0 KiB\nfigures not reliable: 3 events lost\n" in text
    assert "test_free_lost_2 (figures not reliable: 2 events lost)\n" in text
    assert "figures not reliable: 6 events lost in 3 of 4 tests\n" in text


def test_lost_events_may_be_reported_only(run):
    text, status = run(["lost_1", "lost_3_peak_2048"], "-o", "ttmem_lost=report")
    assert status == 1
    assert failed(text) == {"lost_3_peak_2048"}  # by its peak
    assert "figures not reliable: 4 events lost in 2 of 2 tests\n" in text
    text, status = run(["lost_1"], "-o", "ttmem_lost=report")
    assert status == 0
    assert "test_lost_1 (figures not reliable: 1 event lost)\n" in text


def test_lost_events_are_in_the_summary_of_many_tests(run):
    text, _ = run(["lost_1"], "--ttmem", others=[f"left_{size}" for size in range(200, 215)])
    _, _, summary = text.partition("device memory")
    assert summary.count("  test_it.py::test_left_") == 10
    assert "  test_it.py::test_lost_1 (figures not reliable: 1 event lost)\n" in summary
    assert "and 5 more tests, which left and used less\n" in text


def test_what_exceeds_a_limit(run):
    text, status = run(["left_100", "left_101", "left_2048_peak_1024", "peak_1025", "peak_2048_lines"])
    assert status == 1
    assert failed(text) == {"left_101", "left_2048_peak_1024", "peak_1025", "peak_2048_lines"}
    for want in (
        "101 B unfreed exceeds limit_leaks = 100 B:\n",
        "2.0 KiB unfreed exceeds limit_leaks = 100 B:\n",
        "DRAM peak 1025 B exceeds limit_peak = 1024 B\n",  # not 1.0 KiB exceeds 1.0 KiB
        "DRAM peak 2.0 KiB exceeds limit_peak = 1.0 KiB\n       2.0 KiB  2  m.py:9 g\n          10 B  1  m.py:8 g  scratchpad\n",
    ):
        assert want in text


def test_a_peak_that_may_have_been_higher(run):
    text, status = run(["peak_512", "least_peak_512"], "--ttmem")
    assert status == 0
    assert re.search(r"  512 B  \S+::test_peak_512$", text, re.M)
    assert re.search(r" >= 512 B  \S+::test_least_peak_512$", text, re.M)


@pytest.mark.parametrize(
    "name, why",
    [
        ("hangs", "ttmem did not answer within 6 s (ttmem_timeout in pytest.ini)"),
        ("ends", "it ended"),
        ("noise", "ttmem answered 'noise'"),
    ],
)
def test_a_limit_does_not_pass_without_an_answer(run, name, why):
    text, status = run(["good", name, "later"], *(["-o", "ttmem_timeout=6"] if name == "hangs" else []))
    assert status == 1
    assert failed(text) == {name, "later"}
    assert text.count(f"device memory cannot be measured: {why}") >= 2
    assert f"ttmem: {why}\n" in text
    text, status = run(["good", name, "later"], "--no-ttmem")
    assert status == 0


def test_the_summary_of_parallel_workers(run):
    text, status = run(["left_200", "good"], "--ttmem", "-n", "2", others=["free_left_300", "free_lost_2"])
    assert status == 1
    _, _, summary = text.partition("device memory")
    for name in ("left_200", "good", "free_left_300", "free_lost_2"):
        assert f"test_it.py::test_{name}" in summary
    assert "figures not reliable: 2 events lost in 1 of 4 tests\n" in summary
    text, _ = run(["ends"], "-n", "1")
    assert "ttmem: it ended\n" in text


def test_a_forked_process_leaves_the_measurement_alone(run, tmp_path):
    from ttmem import live

    watcher = live.Watcher(str(tmp_path / "ttmem"))
    step = watcher.begin("test")
    child = os.fork()
    if child == 0:
        try:
            watcher.end(step)
        except live.Error as error:
            watcher.close()
            os._exit("forked process" not in str(error))
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert watcher.end(step)["step"] == "test"
    watcher.close()


@pytest.mark.parametrize("setting", ["ttmem_lost=maybe", "ttmem_timeout=soon", "ttmem_timeout=0", "ttmem_timeout=nan"])
def test_wrong_settings(run, setting):
    text, status = run(["good"], "-o", setting)
    assert status == 4


def test_a_baseline(run, tmp_path):
    """Figures are of a test's name here: a test of the same name with others is one of the file."""
    file = tmp_path / "base.json"
    text, status = run(["good"], "--ttmem-baseline", "base.json")
    assert status == 4
    assert f"ERROR: --ttmem-baseline {file}: no such file: --ttmem-update-baseline makes it\n" in text
    text, status = run([], "--ttmem-update-baseline", others=["good"])
    assert status == 4
    names = ["left_10_peak_100_lines", "left_200_peak_2048", "left_50", "lost_1", "good"]
    update = "--ttmem-baseline", "base.json", "--ttmem-update-baseline"
    text, status = run([], *update, others=names)
    assert status == 0
    assert f"ttmem: {file} has 4 tests of this run, without 1 that failed or lost events\n" in text
    document = json.loads(file.read_text())
    tests = document["tests"]
    assert tests["test_it.py::test_left_10_peak_100_lines"] == {
        "left": {"DRAM  m.py f": 10},
        "peaks": {"DRAM": {"bytes": 100, "lines": {"m.py g": 90, "scratchpad  m.py g": 10}}, "L1": {"bytes": 100, "lines": {}}},
    }

    text, status = run([], "--ttmem-baseline", "base.json", others=names)
    assert status == 0
    assert "not in the baseline: 1 tests; --ttmem-update-baseline adds them\n" in text

    tests["test_it.py::test_left_10_peak_100_lines"]["peaks"]["L1"]["bytes"] = 98
    tests["test_it.py::test_left_10_peak_100_lines"]["peaks"]["DRAM"] = {"bytes": 97, "lines": {"m.py g": 87, "scratchpad  m.py g": 10}}
    tests["test_it.py::test_left_200_peak_2048"]["left"] = {"DRAM  m.py f": 100, "DRAM  m.py g": 90}
    tests["test_it.py::test_left_50"] = {"left": {"DRAM  m.py f": 70}, "peaks": {"DRAM": {"bytes": 1, "lines": {}}, "L1": {"bytes": 1, "lines": {}}}}
    file.write_text(json.dumps(document))
    for more in ([], ["-n", "2"]):
        text, status = run([], "--ttmem-baseline", "base.json", *more, others=names)
        assert status == 1
        assert failed(text) == {"left_10_peak_100_lines", "left_200_peak_2048"}
        assert "L1 peak 100 B exceeds the baseline's 98 B\n" in text
        assert "DRAM peak 100 B exceeds the baseline's 97 B\n          90 B  2  m.py:9 g\nL1" in text  # only what grew
        assert re.search(r"200 B unfreed exceeds the baseline's 190 B:\n +200 B  1 in DRAM  m.py:200 f\n", text)
    text, status = run([], "--ttmem-baseline", "base.json", "-o", "ttmem_tolerance=5.5%", others=names)
    assert status == 0
    text, status = run([], "--ttmem-baseline", "base.json", "-o", "ttmem_tolerance=9", others=names)
    assert failed(text) == {"left_200_peak_2048"}
    # whatever pytest takes as the root of the tests
    text, status = run([], "--ttmem-baseline", "base.json", "--rootdir", "/", others=names)
    assert failed(text.replace(str(tmp_path)[1:] + "/", "")) == {"left_10_peak_100_lines", "left_200_peak_2048"}
    # what did not run stays
    text, status = run([], *update, "-n", "2", others=["left_50", "new"])
    assert status == 0
    after = json.loads(file.read_text())["tests"]
    assert after["test_it.py::test_left_50"]["left"] == {"DRAM  m.py f": 50}
    assert after["test_it.py::test_new"]["left"] == {}
    assert after["test_it.py::test_left_10_peak_100_lines"]["peaks"]["L1"]["bytes"] == 98
    for wrong in ("[]", "{", '{"v":1,"kind":"pytest --ttmem-baseline","tests":{"x":1}}', '{"v":2,"kind":"pytest --ttmem-baseline","tests":{}}'):
        file.write_text(wrong)
        text, status = run([], "--ttmem-baseline", "base.json", others=["good"])
        assert status == 4
        assert "no baseline of this version" in text
    text, status = run([], "--ttmem-baseline", "base.json", "-o", "ttmem_tolerance=some", others=["good"])
    assert status == 4


def test_a_baseline_needs_the_measurement(run, tmp_path):
    text, status = run([], "--ttmem-baseline", "base.json", "--ttmem-update-baseline", others=["good", "ends"])
    assert status == 1
    assert f"ttmem: {tmp_path / 'base.json'} is not written: tests were not measured\n" in text
    assert not (tmp_path / "base.json").exists()
    text, status = run([], "--ttmem-baseline", "base.json", "--ttmem-update-baseline", others=["good", "lost_0"])
    text, status = run([], "--ttmem-baseline", "base.json", "--ttmem-command", "/nonexistent/ttmem", others=["good"])
    assert status == 1
    assert failed(text) == {"good"}


@pytest.mark.parametrize("more", [[], ["-n", "1"]])
def test_annotations_for_github(run, tmp_path, monkeypatch, more):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    text, status = run(["good", "left_200_peak_2048"], *more)
    assert status == 1
    [line] = [line for line in text.splitlines() if line.startswith("::")]
    assert line == (
        f"::error file={tmp_path.name}/test_it.py,line=4,title=test_it.py%3A%3Atest_left_200_peak_2048::"
        "200 B unfreed exceeds limit_leaks = 100 B:%0A         200 B  1 in DRAM  m.py:200 f%0ADRAM peak 2.0 KiB exceeds limit_peak = 1.0 KiB"
    )


def test_annotations_are_escaped(monkeypatch):
    from ttmem import pytest_plugin

    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    step = {"place": ["/w/a,b:c%.py", 3], "step": "x[a:b,100%]\n", "wrong": ["100%", "a, b: c\r"]}
    assert pytest_plugin.annotation(step) == (
        "::error file=/w/a%2Cb%3Ac%25.py,line=3,title=x[a%3Ab%2C100%25]%0A::100%25%0Aa, b: c%0D"
    )
