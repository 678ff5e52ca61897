"""Allocates tensors in call stacks of many kinds, and records Python's own view of the
stack at each of them.

Writes a line of JSON for each to the file TTMEM_STACKS: {kind, tid, time_ns,
frames}, where time_ns is CLOCK_MONOTONIC just before the call and frames are
[qualified name, or name on 3.10, file, line] from the newest. What a thread
allocates from then until its next record, it allocates in that call. A record
without a kind ends what belongs to the one before.

If there is a command TTMEM_LOG that lists the traced events as JSON, the program begins once
that lists a whole stack of it.
"""

import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import ttnn
from device import attempt, close_device, open_device

records = []
kind = ""
SHAPES = [(32, 32), (64, 32), (64, 64)]


def note():
    frames = [
        (getattr(f.f_code, "co_qualname", f.f_code.co_name), f.f_code.co_filename, line)
        for f, line in traceback.walk_stack(sys._getframe(1))
    ]
    summary = traceback.extract_stack(sys._getframe(1))[::-1]
    assert [(s.filename, s.lineno) for s in summary] == [f[1:] for f in frames]
    record(kind, frames)


def record(what, frames=()):
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    records.append({"kind": what, "tid": threading.get_native_id(), "time_ns": now, "frames": frames})


def alloc(n=0):
    return note(), ttnn.empty(list(SHAPES[n % 3]), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


KINDS = []


def a_kind(f):
    KINDS.append(f)
    return f


@a_kind
def plain():
    alloc()
    for i in range(50):
        alloc(i)


@a_kind
def operations():
    config = ttnn.L1_MEMORY_CONFIG
    x = alloc()[1]
    y = note(), ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    y = note(), ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    y = note(), ttnn.full([32, 32], 1.5, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    y = note(), ttnn.add(x, x)
    y = note(), ttnn.relu(x, memory_config=config)
    y = note(), ttnn.matmul(x, x)
    y = note(), x + x
    y = note(), ttnn.to_memory_config(x, config)
    y = note(), ttnn.softmax(x)
    y = note(), ttnn.typecast(x, ttnn.float32)
    del y


@a_kind
def from_host():
    host = ttnn.Tensor([1.0] * 1024, [32, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)
    note(), ttnn.to_device(host, device)
    note(), host.to(device)


@a_kind
def nested():
    def inner(n):
        return inner(n - 1) if n else alloc()

    for n in range(10):
        inner(n)
    inner(60)
    (lambda f: f())(lambda: (lambda: inner(1))())
    functools.partial(functools.partial(inner), 1)()


@a_kind
def generators():
    def inner(n):
        if n:
            yield from inner(n - 1)
        yield alloc()

    def outer():
        for x in inner(4):
            yield x

    list(outer())
    [x for x in outer() if note() or ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)]
    {n: alloc() for n in range(2)}
    any(not alloc() for _ in (1, 2))


@a_kind
def callbacks():
    sorted([2, 1, 3], key=lambda x: (alloc(), x)[1])
    max([1, 2], key=lambda x: alloc() and x)
    list(map(alloc, [1, 2]))
    list(filter(alloc, [1, 2]))
    functools.reduce(lambda a, b: alloc() and b, [1, 2, 3])
    called = ctypes.CFUNCTYPE(None)(lambda: alloc() and None)
    called()
    # in C, in Python, in C again
    ctypes.CFUNCTYPE(None)(lambda: sorted([1], key=lambda _: called() or 1) and None)()


@a_kind
def called_by_nanobind():
    tensor = alloc()[1]
    # ttnn's own binding is a C++ function that calls a Python one
    called = attempt("callback", lambda: ttnn._ttnn.tensor.decorate_external_operation(lambda x: alloc(x.shape[0] // 32), "named"))
    if called:
        for _ in range(3):
            called(tensor)
        attempt("in each other", lambda: ttnn._ttnn.tensor.decorate_external_operation(lambda x: called(x), "outer")(tensor))


@a_kind
def classes():
    class Model:
        def __init__(self, depth):
            self.parts = [Model(depth - 1) for _ in range(2)] if depth else []
            self.weight = alloc(depth)[1]

        def __call__(self, x):
            for part in self.parts:
                x = part(x)
            return self.forward(x)

        def forward(self, x):
            y = note(), ttnn.add(
                x,
                x,
            )
            return x

        @property
        def fresh(self):
            return alloc()

        def __del__(self):
            alloc()

        def __enter__(self):
            alloc()

        def __exit__(self, *error):
            alloc()

    model = Model(2)
    model(alloc()[1]), model.fresh
    with model:
        pass
    del model
    gc.collect()

    @contextlib.contextmanager
    def manager():
        alloc()
        yield
        alloc()

    with manager(), manager():
        alloc()


@a_kind
def executed():
    exec(compile("def größe():\n\n return alloc()\n\ngröße()", "/made/up/файл.py", "exec"), globals())
    eval("[alloc() for _ in (1,)]")
    for i in range(200):
        scope = dict(globals())
        exec(compile("\n" * (i % 9) + f"def f{i:03}(): return alloc()", f"/made/up/{i:03}.py", "exec"), scope)
        scope[f"f{i:03}"]()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        for i in range(5):
            with open(os.path.join(folder, "reloaded.py"), "w") as f:
                f.write("\n" * i + f"def f{i}(alloc):\n    return alloc()\nf = f{i}\n")
            importlib.invalidate_caches()
            module = importlib.reload(sys.modules["reloaded"]) if i else importlib.import_module("reloaded")
            module.f(alloc)
        sys.path.pop(0)


@a_kind
def asynchronous():
    async def inner(n):
        alloc()
        if n:
            await inner(n - 1)
        await asyncio.sleep(0)
        alloc()

    async def outer():
        await asyncio.gather(inner(2), inner(1))
        await asyncio.get_running_loop().run_in_executor(None, alloc)

    asyncio.run(outer())


@a_kind
def threads():
    def body(i):
        def inner(n):
            return inner(n - 1) if n else alloc(i)

        start.wait()
        for n in range(30):
            inner(n % 5)
            sorted([1], key=lambda _: bool(alloc()))

    start = threading.Barrier(4)
    all_threads = [threading.Thread(target=body, args=(i,)) for i in range(4)]
    for t in all_threads:
        t.start()
    for t in all_threads:
        t.join()

    # a thread that C made, which Python learns of when it is called there
    called = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: alloc() and None)
    libc, handle = ctypes.CDLL(None), ctypes.c_ulong()
    if libc.pthread_create(ctypes.byref(handle), None, called, None):
        raise OSError("pthread_create")
    libc.pthread_join(handle, None)


def await_stacks(log):
    """Allocates until events have this function and the start of its thread: the tracer reads
    the tables of a library, and those of Python, while the program runs already."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        ttnn.deallocate(ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG))
        time.sleep(0.1)
        listed = subprocess.run(log, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        if any('"await_stacks"' in line and '"_start"' in line for line in listed.splitlines()):
            return
    sys.exit("no whole stack was traced in 300 s")


device = open_device()
if "TTMEM_LOG" in os.environ:
    await_stacks(os.environ["TTMEM_LOG"].split())
for f in KINDS:
    kind = f.__name__
    f()
    record("")
close_device(device)
with open(os.environ["TTMEM_STACKS"], "w") as f:
    for r in records:
        f.write(json.dumps(r) + "\n")
