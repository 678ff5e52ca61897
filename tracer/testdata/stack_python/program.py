"""Calls ttprobe.probe() in stacks of many kinds, and takes down what Python itself
says the stack is at each call.

Arguments: the folder that has ttprobe.so, the file to write, how many functions
are made that die. It prints "ready" and waits for a line, so that it can be
attached to.

Writes a line of JSON for each call: {kind, tid, depths, frames}, in the order of
each thread's calls. frames are [name, qualified name, file, line] from the newest,
depths are how many Python frames called each function of ttprobe that is between
them. Where there are more frames than are shown, {"n": how many} is there as well.
"""

import asyncio
import atexit
import contextlib
import functools
import importlib
import json
import operator
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
import weakref

FOLDER, OUT, DYING = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True

import ttprobe
from ttprobe import call, descend, probe, probe_held

SHOWN = 128
notes = {}  # by thread: lists only grow, and each thread has its own
kind = "start"
checking = True


def note():
    try:
        caller = sys._getframe(1)
    except ValueError:
        return no_python(threading.get_native_id())  # C alone called probe
    frames = [
        (f.f_code.co_name, getattr(f.f_code, "co_qualname", ""), f.f_code.co_filename, line or 0)
        for f, line in traceback.walk_stack(caller)
    ]
    if checking:
        summary = traceback.extract_stack(caller)[::-1]
        assert [(s.name, s.filename, s.lineno or 0) for s in summary] == [(f[0], f[2], f[3]) for f in frames]
    record = {"kind": kind, "depths": ttprobe.depths(), "frames": frames[:SHOWN]}
    if len(frames) > SHOWN:
        record["n"] = len(frames)
    notes.setdefault(threading.get_native_id(), []).append(record)


def no_python(tid):
    notes.setdefault(tid, []).append({"kind": kind, "depths": ttprobe.depths(), "frames": []})


KINDS = []


def a_kind(f):
    KINDS.append(f)
    return f


@a_kind
def plain():
    probe()
    probe()
    probe_held()
    probe_held()


@a_kind
def repeats():
    """Stacks that repeat, and others between them that differ from the last one in a single thing."""
    for _ in range(3):
        probe()
        probe()

    def deep(n):
        return deep(n - 1) if n else probe()

    for n in (3, 3, 2, 2, 3, 0, 0, 3):
        deep(n)

    def through(n):
        if n:
            return deep(2)
        return deep(2)

    for n in (1, 1, 0, 0, 1):
        through(n)
    for lines in (0, 0, 5, 1, 5, 5):
        made = {}
        exec("\n" * lines + "def made(f):\n    f()\n    f()", {}, made)  # its code dies, and others may get its place
        made["made"](probe)
        made["made"](probe)

    def asks():
        while True:
            probe()
            yield

    one, other = asks(), asks()
    for which in (one, one, other, one, other, other):
        next(which)


@a_kind
def nested():
    def inner():
        def innermost():
            probe(), probe()

        innermost()

    inner()


@a_kind
def closures():
    def make(n):
        def closure():
            return (n, probe()) if n else make(n + 1)()

        return closure

    make(0)()
    make(1)()


@a_kind
def generators():
    def inner(n):
        if n:
            yield from inner(n - 1)
        probe()
        yield n
        probe_held()

    def outer():
        for x in inner(3):
            yield x

    list(outer())
    [x for x in inner(2)]
    {x: y for x in inner(1) for y in outer()}
    set(x for x in (y for y in inner(1)))
    sent = inner(1)
    next(sent), sent.send(1), sent.close()


@a_kind
def closed_and_thrown():
    def closed():
        try:
            yield 1
        finally:
            probe()

    g = closed()
    next(g), g.close()
    g = closed()
    next(g)
    try:
        g.throw(ValueError())
    except ValueError:
        probe()
    g = closed()
    next(g)
    del g


@a_kind
def comprehensions():
    [probe() for _ in (1, 2)]
    {probe() for _ in (1, 2)}
    {probe(): [
        probe_held()
        for _ in (1,)
        if not probe()
    ] for _ in (1,)}
    any(probe() for _ in (1, 2))
    [[probe() for _ in (1,)] for _ in (1,)]


@a_kind
def lambdas():
    (lambda: probe())()
    (lambda f: f())(lambda: (lambda: probe_held())())


@a_kind
def decorators():
    def decorate(before):
        def decorator(f):
            @functools.wraps(f)
            def wrapper(*args):
                before()
                return f(*args)

            return wrapper

        return decorator

    @decorate(probe)
    @decorate(lambda: probe_held())
    def decorated(n):
        return probe() if n == 0 else decorated(n - 1)

    decorated(2)


class Base:
    def __init_subclass__(cls):
        probe()

    def method(self):
        return probe()


@a_kind
def classes():
    class Meta(type):
        def __new__(meta, *args):
            probe()
            return super().__new__(meta, *args)

        def __call__(cls, *args):
            probe()
            return super().__call__(*args)

    class Derived(Base, metaclass=type("Mixed", (Meta,), {})):
        probe()

        class Inner:
            probe_held()

        def __init__(self):
            probe()

        def method(self):
            return super().method()

        @classmethod
        def of_class(cls):
            return cls().method()

        @staticmethod
        def static():
            return probe()

        @property
        def property(self):
            return self.static()

        def __getattr__(self, name):
            return self[name]

        def __getitem__(self, name):
            return self(name)

        def __call__(self, name):
            return self + name

        def __add__(self, name):
            return bool(self)

        def __bool__(self):
            return probe() is None

        def __hash__(self):
            probe()
            return 1

        def __eq__(self, other):
            probe()
            return True

        def __format__(self, spec):
            return str(probe())

        def __iter__(self):
            return self

        def __next__(self):
            probe()
            raise StopIteration

        def __enter__(self):
            probe()

        def __exit__(self, *error):
            probe()

        def __contains__(self, x):
            return probe()

    d = Derived.of_class()
    d = Derived()
    d.method(), d.property, d.missing, getattr(d, "other")
    {d: 1}[Derived()]
    f"{d:x} {d}"
    list(d), 1 in d
    with d:
        probe()


@a_kind
def deleted():
    class Deleted:
        def __del__(self):
            probe()

    x = Deleted()
    del x
    x = [Deleted()]
    x.clear()
    y = Deleted()
    weakref.finalize(y, lambda: probe_held())
    y = None


@a_kind
def callbacks():
    sorted([2, 1], key=lambda x: probe() or x)
    max([1, 2], key=lambda x: probe() or x)
    list(map(lambda x: probe(), [1, 2]))
    list(filter(lambda x: probe(), [1, 2]))
    list(map(lambda f: f(), filter(lambda f: not f(), [probe, probe_held])))
    functools.reduce(lambda a, b: [
        probe(),
        a, b, probe_held()] and 0, [1, 2, 3])
    functools.partial(functools.partial(lambda x, y: probe(), 1), 2)()
    functools.lru_cache(lambda x: probe())(1)
    re.sub("a", lambda m: str(probe()), "aa")
    json.loads("{}", object_hook=lambda x: probe())
    operator.methodcaller("method")(Base())
    functools.cmp_to_key(lambda a, b: probe() or 0)(1) < functools.cmp_to_key(lambda a, b: 0)(1)


@a_kind
def executed():
    exec("\n\ndef inside():\n\n  return probe()\n\ninside()\n", globals())
    eval("probe()")
    eval("[probe() for _ in (1,)]")
    for file in ("/made/up.py", "<made up>", "", "größe.py", "/tmp/файл/模块.py", "/𐐨/𐐩.py", "new\nline", "x" * 700):
        exec(compile("(lambda:\n (probe()))()\n\nprobe_held()", file, "exec"), globals())


@a_kind
def cut():
    # what is not shown in full is shown as far as it goes
    for file in ("x" * 768, "x" * 769, "ж" * 384, "ж" * 385, "𐐨" * 192, "𐐨" * 193, "é" * 2000):
        exec(compile("probe()", file, "exec"), globals())
    for name in ("f" + "x" * 255, "f" * 257, "f" * 300, "ж" * 128, "ж" * 129, "ж" * 300, "é" * 300, "𐐨" * 64, "𐐨" * 65, "𐐨" * 300):
        exec(f"def {name}():\n probe()\n{name}()\nclass {name[:100]}:\n def {name}():\n  probe()\n {name}()", globals())


@a_kind
def größe():
    def ÿ():
        probe()

    ÿ()


@a_kind
def функция():
    def 模块():
        probe()

    模块()


@a_kind
def 𐐨𐐩():
    def 𐐪():
        probe()

    𐐪()


@a_kind
def odd_names():
    f = type(plain)
    for name in ("", "a b", "ab\ud800c", "\x00", "<>", "\u2028", "\x7f", "\x80"):
        code = compile("probe()", "<odd>", "exec").replace(co_name=name)
        exec(code, globals())

    class Text(str):
        pass

    for text in ("ascii", "latin-ÿ", "файл", "𐐨𐐩"):
        exec(compile("probe()", Text(text), "exec").replace(co_name=Text("name " + text)), globals())
    f(plain.__code__.replace(co_name="other", co_filename="/other.py"), globals())()


@a_kind
def recursion():
    def recurse(n):
        return recurse(n - 1) if n else probe()

    def through_c(n):
        return max([1], key=lambda _: through_c(n - 1)) if n else probe()

    recurse(60), recurse(60)
    recurse(150), recurse(150)
    through_c(20), through_c(20)
    through_c(80)
    base = len(traceback.extract_stack())
    for n in (127, 128, 129, 130):  # frames in all
        recurse(n - base - 1), recurse(n - base - 1)


@a_kind
def several_lines():
    def f(*args):
        return probe(
        ), probe(

            *[],
        )

    f(
        1,
        f(2,
          f(
              3)),
    )
    (
        probe
    )(
    )
    x = Base()
    (x
     .method
     )()
    return [
        1,
        f(),
        {
            2: f(
            )},
    ]


@a_kind
def far_lines():
    exec(compile("def f():\n probe()\n" + "\n" * 300 + " probe()\n" + "\n" * 70000 + " probe()\nf()", "<far>", "exec"), globals())
    # line tables larger than most, and one larger than what is copied
    for n, file in ((300, "<large>"), (3000, "<large>"), (6000, "<large>"), (30000, "<huge>")):
        body = "".join(f" x = {i}\n" for i in range(n))
        exec(compile("def f():\n probe()\n" + body + " probe()\n" + body + " probe()\nf()", file, "exec"), globals())


@a_kind
def managers():
    @contextlib.contextmanager
    def manager(n):
        probe()
        try:
            if n:
                with manager(n - 1):
                    yield 1
            else:
                yield 1
        finally:
            probe()

    with manager(2), \
            manager(0) as x:
        probe()
    with contextlib.ExitStack() as stack:
        stack.callback(probe)
        stack.callback(lambda: probe())
        stack.enter_context(manager(1))
        probe()


@a_kind
def blocks():
    try:
        try:
            raise ValueError
        except (ValueError,
                TypeError) as e:
            probe()
            raise TypeError from e
        else:
            pass
        finally:
            probe()
    except TypeError:
        probe_held()
    for i in range(2):
        try:
            continue
        finally:
            probe()
    while probe():
        pass
    x = 1 if probe() else 2
    assert not probe(), (
        "message")
    return probe() or \
        probe()


@a_kind
def matched():
    class Point:
        __match_args__ = ("x",)

        @property
        def x(self):
            return probe()

    for value in ([1, 2], {"a": 1}, Point(), "text", 5):
        match value:
            case [1, *rest] if not probe():
                probe()
            case {"a": a}:
                probe()
            case Point(None):
                probe()
            case str() if probe():
                pass
            case str():
                probe()
            case _ if (
                probe()
            ):
                pass


@a_kind
def asynchronous():
    class Manager:
        async def __aenter__(self):
            await asyncio.sleep(0)
            probe()

        async def __aexit__(self, *error):
            probe()

    async def inner(n):
        probe()
        if n:
            await inner(n - 1)
        await asyncio.sleep(0)
        probe()

    async def produce():
        for i in range(2):
            probe()
            yield i
            await asyncio.sleep(0)

    async def outer():
        await asyncio.gather(inner(2), inner(1), *[
            inner(0) for _ in range(3)])
        async with Manager():
            probe()
        [x async for x in produce() if not probe()]
        async for x in produce():
            probe()
        loop = asyncio.get_running_loop()
        loop.call_soon(probe)
        loop.call_soon(lambda: probe())
        await loop.run_in_executor(None, probe)
        task = asyncio.create_task(inner(3))
        task.add_done_callback(lambda _: probe())
        await task
        task = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            probe()

    asyncio.run(outer())


@a_kind
def traced():
    def tracer(frame, event, arg):
        if frame.f_code is f.__code__:
            probe()
            return tracer

    def profiler(frame, event, arg):
        if frame.f_code is f.__code__:
            probe()

    def f():
        x = 1
        probe()
        return [
            x,
            probe()]

    sys.settrace(tracer)
    f()
    sys.settrace(None)
    sys.setprofile(profiler)
    f()
    sys.setprofile(None)
    f()


@a_kind
def signalled():
    signal.signal(signal.SIGUSR1, lambda *_: probe())
    signal.raise_signal(signal.SIGUSR1)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
        sum(range(100))


@a_kind
def reloaded():
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for i in range(30):
            with open(os.path.join(folder, "reloaded.py"), "w") as f:
                f.write("from ttprobe import probe\n" + "\n" * i + f"def f{i % 7}():\n    probe()\n" + "\n" * (i % 3) + f"probe()\nf = f{i % 7}\n")
            importlib.invalidate_caches()
            module = importlib.reload(sys.modules["reloaded"]) if i else importlib.import_module("reloaded")
            module.f()
        sys.path.pop(0)


@a_kind
def from_c():
    def inner():
        probe()

    call(probe)
    call(lambda: probe())
    call(lambda: call(inner))
    call(lambda: [call(lambda: call(lambda: inner())), probe()])
    descend(5, inner)
    descend(2, lambda: call(lambda: descend(3, lambda: sorted([1], key=lambda _: call(inner)))))

    def generate():
        yield call(inner)
        yield from (call(lambda: probe()) for _ in (1, 2))

    call(lambda: list(generate()))
    call(functools.partial(call, functools.partial(call, probe)))


@a_kind
def foreign_threads():
    def body():
        no_python(threading.get_native_id())  # the thread's first
        probe()
        call(lambda: probe())
        [probe() for _ in (1,)]

    for _ in range(3):
        no_python(ttprobe.thread(body))
        tid = ttprobe.thread(None)
        no_python(tid), no_python(tid)
        # as all the others: before Python knows the thread, and after
        tid = ttprobe.thread(probe)
        notes[tid].insert(0, notes[tid][0]), no_python(tid)


@a_kind
def ten_threads():
    start = threading.Barrier(10)

    def body(i):
        def inner(n):
            return inner(n - 1) if n else probe()

        start.wait()
        for n in range(100):
            inner(i + n % 3)
            probe_held()
            sorted([1], key=lambda _: call(lambda: probe()))

    threads = [threading.Thread(target=body, args=(i,), name=f"thread {i}") for i in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@a_kind
def dying_in_threads():
    def body(t):
        for i in range(200):
            scope = {"probe": probe}
            exec(compile("\n" * (i % 5) + f"def f{t}{i:03}():\n probe()", f"/made/up/{t}/{i:03}.py", "exec"), scope)
            scope[f"f{t}{i:03}"]()

    threads = [threading.Thread(target=body, args=(t,)) for t in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def dying():
    """Functions that die, in whose place others come to lie."""
    global checking
    checking = False
    places = set()
    for i in range(DYING):
        scope = {"probe": probe}
        source = "\n" * (i % 50) + f"def f{i:05}():\n" + "\n" * (i % 7) + " probe()\n"
        exec(compile(source, f"/made/up/{i:05}.py", "exec"), scope)
        f = scope[f"f{i:05}"]
        places.add(id(f.__code__))
        f()
    checking = True
    return len(places)


def finish():
    with open(OUT, "w") as f:
        for tid, list in notes.items():
            for record in list:
                f.write(json.dumps({"tid": tid, **record}) + "\n")
        f.write(json.dumps({"kind": "end", "places": places}) + "\n")


def main():
    global kind, places
    print("ready", flush=True)
    sys.stdin.readline()
    ttprobe.set_note(note)
    for f in KINDS:
        kind = f.__name__
        f()
    assert "t" not in sys.abiflags or not sys._is_gil_enabled()
    kind = "dying"
    places = dying()
    kind = "at exit"
    atexit.register(finish)
    atexit.register(probe)
    atexit.register(lambda: probe())


main()
