"""Blocks many threads in stacks of many kinds, and says what Python itself thinks
they are.

Prints one line of JSON when all are blocked: a list of {kind, ident, tid, frames}, where
frames are [name, qualified name, file, line], from the newest. Ends when standard
input does.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import sys
import threading
import time
import traceback

reports = []
blocked = threading.Semaphore(0)


def note(kind):
    frames = [
        [f.f_code.co_name, getattr(f.f_code, "co_qualname", ""), f.f_code.co_filename, line]
        for f, line in traceback.walk_stack(sys._getframe(1))
    ]
    summary = traceback.extract_stack(sys._getframe(1))[::-1]
    assert [[f[0], f[2], f[3]] for f in frames] == [[s.name, s.filename, s.lineno] for s in summary]
    reports.append({"kind": kind, "ident": threading.get_ident(), "tid": threading.get_native_id(), "frames": frames})
    blocked.release()


# The frame that notes and blocks does both on one line.
block = functools.partial(time.sleep, 1000)

KINDS = []


def kind(f):
    KINDS.append(f)
    return f


@kind
def plain(kind="plain"):
    return note(kind), block()


@kind
def groups():
    def inner():
        return note("groups"), block()

    def middle():
        return inner()

    return sorted([1], key=lambda _: middle())


@kind
def deep(n=100):
    if n == 0:
        return note("deep"), block()
    return deep(
        n
        - 1
    )


@kind
def generators():
    def inner(n):
        if n:
            yield from inner(n - 1)
        yield note("generators"), block()

    def outer():
        for x in inner(3):
            yield x

    return list(outer())


@kind
def comprehensions():
    def one(x):
        return note("comprehensions"), block()

    return {x: [one(y) for y in (1,)
                if y] for x in (1,)}


@kind
def generator_expression():
    return any(note("generator_expression") or block() for _ in (1,))


@kind
def executed():
    exec("\n\ndef inside():\n\n  return note('executed'), block()\n\ninside()\n", globals())


@kind
def compiled():
    exec(compile("(lambda:\n (note('compiled'), block()))()", "/tmp/größe/файл/𐐨.py", "exec"))


@kind
def classes():
    class Outer:
        class Inner:
            note("classes"), block()


@kind
def special():
    class Special:
        def __getattr__(self, name):
            return self[name]

        def __getitem__(self, name):
            return self(name)

        def __call__(self, name):
            return self + name

        def __add__(self, name):
            return bool(self)

        def __bool__(self):
            return note("special"), block()

    functools.partial(lambda x: x.name, Special())()


@kind
def deleted():
    class Deleted:
        def __del__(self):
            note("deleted"), block()

    x = Deleted()
    del x


@kind
def reduced():
    functools.reduce(lambda a, b: (
        a, [note("reduced"), block()], b), [1, 2])


@kind
def managed():
    @contextlib.contextmanager
    def manager():
        yield 1
        # a far line: the next one is more than 128 lines away from the last



































































































































        note("managed"), block()

    with manager():
        pass


@kind
def caught():
    try:
        raise ValueError
    except ValueError:
        try:
            raise TypeError from None
        finally:
            note("caught"), block()


@kind
def called_back():
    callback = ctypes.CFUNCTYPE(None)(lambda: (note("called_back"), block()))
    callback()


@kind
def coroutines():
    async def inner():
        return note("coroutines"), block()

    async def outer():
        await inner()

    asyncio.run(outer())


@kind
def größe():
    note("größe"), block()


@kind
def функция():
    note("функция"), block()


@kind
def 𐐨𐐩():
    note("𐐨𐐩"), block()


@kind
def renamed():
    code = plain.__code__.replace(co_name="ab\ud800c" + "x" * 300)
    type(plain)(code, globals())("renamed")


def surrogates(frames):
    """JSON could not tell lone surrogates from others."""
    return [["".join("\ufffd" if "\ud800" <= c < "\ue000" else c for c in x) if isinstance(x, str) else x for x in f] for f in frames]


# a thread that Python did not start, and knows from a call only
def foreign(_):
    note("foreign"), block()
    return None


start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(foreign)
handle = ctypes.c_ulong()
if ctypes.CDLL(None).pthread_create(ctypes.byref(handle), None, start, None):
    raise OSError("pthread_create")

for f in KINDS:
    threading.Thread(target=f, daemon=True).start()
for _ in range(len(KINDS) + 1):
    blocked.acquire()


def main():
    def wait():
        note("main"), publish(), sys.stdin.read()

    def publish():
        # everything else still has to get from note to block
        time.sleep(0.1)
        for r in reports:
            r["frames"] = surrogates(r["frames"])
        print(json.dumps(reports), flush=True)

    return max([1], key=lambda _: wait())


main()
