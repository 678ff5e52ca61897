"""ttmem.step() and the functions that PyTorch's users know, beside a made-up `ttmem steps`."""

import sys
import warnings

import pytest

import ttmem
from ttmem import live

# A `ttmem steps` that prints what the test writes to a file, a line for each line that it reads, and keeps these.
STEPS = """#!{python}
import sys
print('{{"v":1,"ready":true}}', flush=True)
with open({answers!r}) as answers, open({asked!r}, "a", buffering=1) as asked:
    for number, line in enumerate(sys.stdin):
        asked.write(line)
        if number == 0:  # reset
            print('{{"peaks":[],"lost":0}}', flush=True)
            continue
        answer = answers.readline()
        if not answer:
            sys.exit("ttmem: it ended")
        print(answer, end="", flush=True)
"""
BEGAN = '{"began":"x","id":1}\n'
PEAK = '{"device":%d,"region":"DRAM","end_bytes":%d,"peak_bytes":%d,"lines":[{"bytes":7,"buffers":1,"name":"model.py:3 f"}]}'
LEFT = '{"region":"DRAM","bytes":2048,"buffers":2,"name":"model.py:3 f","calls":["model.py:3 f"],"file":"/m/model.py","line":3%s}'


def ended(left="", lost=0, failures=""):
    peaks = PEAK % (0, 1, 10) + "," + PEAK % (1, 2, 20)
    return f'{{"step":"x","begin_ns":1000000000,"end_ns":3000000000,"peaks":[{peaks}],"left":[{left}],"failures":[{failures}],"lost":{lost}}}\n'


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Sets the answers of the made-up ttmem, and returns a function that returns the lines that it read."""
    program, file, asked = tmp_path / "ttmem", tmp_path / "answers", tmp_path / "asked"
    program.write_text(STEPS.format(python=sys.executable, answers=str(file), asked=str(asked)))
    program.chmod(0o755)
    monkeypatch.setattr(live, "find_program", lambda command: str(program))
    monkeypatch.setattr(live, "_shared", None)

    def answers(*lines):
        file.write_text("".join(lines))
        return lambda: asked.read_text().splitlines()

    yield answers
    if live._shared:
        live._shared.close()


def test_a_step(answers):
    kept = LEFT % ',"kept":"cache"'
    asked = answers(BEGAN, ended(kept + "," + LEFT % ""), ended(LEFT % "" + "," + kept, failures='{"region":"L1","devices":[0],"size_bytes":1024,"name":"ttnn.add","calls":[]}'))
    with ttmem.step("x  y\nz") as step:
        assert not step.measured
        assert step.peaks["DRAM"] == 0
    assert asked() == ["reset", "begin x y z", "end 1", "end 1"]  # it left something, and collected garbage
    assert step.measured and step.seconds >= 0
    step.seconds = 2
    assert step.peaks == {"DRAM": 20} and step.peaks["L1"] == 0
    assert step.chips == {0: {"DRAM": 10}, 1: {"DRAM": 20}}
    [line] = step.lines["DRAM"]
    assert (line.bytes, line.name, line.static, str(line)) == (7, "model.py:3 f", None, "         7 B  model.py:3 f")
    [left] = step.left  # without what the runtime retains
    assert (left.region, left.bytes, left.buffers, left.name, left.file, left.line) == ("DRAM", 2048, 2, "model.py:3 f", "/m/model.py", 3)
    [failure] = step.failures
    assert (failure.region, failure.size_bytes, failure.message, failure.line) == ("L1", 1024, None, None)
    assert repr(step) == (
        "step x  y\nz: 2 s, peak DRAM 20 B, 2.0 KiB left\n1.0 KiB of L1 failed  ttnn.add\n     2.0 KiB  2 in DRAM  model.py:3 f"
    )


def test_a_notebook_shows_a_step(answers, capsys):
    config = pytest.importorskip("traitlets.config").Config()
    config.HistoryManager.enabled = False  # which has a thread
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell(config=config)
    answers(BEGAN, ended())
    assert shell.run_cell("import ttmem\nwith ttmem.step('x') as step:\n    pass\nstep").result.measured
    assert " s, peak DRAM 20 B, 0 B left" in capsys.readouterr().out


def test_lost_events_are_said(answers):
    answers(BEGAN, ended(lost=3), '{"peaks":[],"lost":1}\n')
    with pytest.warns(RuntimeWarning, match="step x: figures not reliable: 3 events lost"):
        with ttmem.step("x"):
            pass
    with pytest.warns(RuntimeWarning, match="figures not reliable: 1 event lost") as said:
        assert ttmem.memory_allocated() == 0
    assert said[0].filename == __file__


def test_the_error_of_the_program_comes_first(answers):
    answers(BEGAN, "noise\n")
    with pytest.warns(RuntimeWarning, match="the device memory of step x is not measured: ttmem answered 'noise"):
        with pytest.raises(KeyError):
            with ttmem.step("x"):
                raise KeyError
    answers(BEGAN, "noise\n")
    with pytest.raises(ttmem.Error, match="the device memory of step x is not measured"):
        with ttmem.step("x"):
            pass


def test_functions(answers):
    use = '{"peaks":[%s,%s],"lost":0}\n' % (PEAK % (0, 1, 10), PEAK % (1, 2, 20))
    asked = answers(use * 8)

    class Mesh:
        def get_device_ids(self):
            return [0, 1]

    assert ttmem.memory_allocated() == 2
    assert ttmem.memory_allocated(0) == 1
    assert ttmem.max_memory_allocated() == 20
    assert ttmem.max_memory_allocated(Mesh()) == 20
    assert ttmem.max_memory_allocated(0) == 10
    assert ttmem.max_memory_allocated(region="L1") == 0
    assert ttmem.reset_peak_memory_stats() is None
    assert asked()[-2:] == ["peaks", "reset"]
    with pytest.raises(ValueError, match="no chip 7; available: 0, 1"):
        ttmem.memory_allocated(7)
    with pytest.raises(ValueError, match="no region 'L2': there are DRAM, L1,"):
        ttmem.memory_allocated(region="L2")


def test_after_an_error_the_next_use_begins_again(answers):
    answers("")
    with pytest.raises(ttmem.Error, match="it ended"):
        ttmem.memory_allocated()
    answers('{"peaks":[],"lost":0}\n')
    assert ttmem.memory_allocated() == 0


def test_an_interrupted_question_is_no_answer_to_the_next(answers, monkeypatch):
    """As Ctrl-C in a notebook: what ttmem answers later belongs to no question."""
    answers('{"peaks":[],"lost":0}\n')

    def interrupt():
        raise KeyboardInterrupt

    watcher = live.watcher()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(watcher, "line", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ttmem.memory_allocated()
    with pytest.raises(ttmem.Error, match="the measurement was interrupted by KeyboardInterrupt"):
        watcher.ask("peaks", "peaks")
    assert ttmem.memory_allocated() == 0  # of another child


def test_without_a_measurement(monkeypatch):
    monkeypatch.setattr(live, "find_program", lambda command: None)
    monkeypatch.setattr(live, "_shared", None)
    with pytest.raises(ttmem.Error, match="^the device memory of step x is not measured: no ttmem: install ttmem$"):
        with ttmem.step("x"):
            pytest.fail("it ran")
    with pytest.warns(RuntimeWarning, match="step x is not measured: no ttmem"):
        with ttmem.step("x", required=False) as step:
            pass
    assert (step.measured, step.peaks["DRAM"], step.left, step.failures) == (False, 0, [], [])
    with pytest.raises(ttmem.Error, match="^no ttmem: install ttmem$"):
        ttmem.memory_allocated()
    with pytest.raises(ValueError):
        with ttmem.step(" "):
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ttmem.step("never entered")
