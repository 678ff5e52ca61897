"""Holds targets in many ways, and says whether paths to them are true.

Its arguments say what the targets are: see target.py. Each line of input is a JSON list of paths, as
ttmem's walk of the heap found them. The answer is a list with "" for each true path, or what is wrong.
"""
import asyncio
import collections
import concurrent.futures
import contextvars
import ctypes
import functools
import gc
import itertools
import json
import queue as queues
import sys
import threading
import types
import weakref

try:
    import numpy
except ImportError:
    numpy = None

from target import labels, target, use

use(*sys.argv[1:])


class Node:
    pass


class Slotted:
    __slots__ = ("left", "right")


class Both(Slotted):
    pass


class Layer:
    shared = target("class attribute")

    def __init__(self, i):
        self.wq = target(f"model.layers[{i}].wq")
        self.cache = {"k": target("str key"), 7: target("int key"), (1, 2): target("tuple key"), -3: target("negative key")}

    def bound(self):
        return self


class Model:
    def __init__(self):
        self.layers = [Layer(i) for i in range(3)]
        self.wide = types.SimpleNamespace(a=target("namespace"))
        for i in range(40):  # more attributes than are kept inline
            setattr(self, f"attribute{i}", target(f"attribute {i}"))


class Error(Exception):
    pass


class Queue(collections.deque):
    pass


class Reference(weakref.ref):
    pass


model = Model()
numbers = [target("list"), (target("tuple"), [target("nested")])]
bag = {target("set")}
frozen = frozenset([target("frozenset")])
queue = collections.deque([None] + [target(f"deque {i}") for i in range(200)])
queue.popleft()
ordered = collections.OrderedDict(a=target("OrderedDict"))
default = collections.defaultdict(list, {"x": [target("defaultdict")]})
named = collections.namedtuple("Named", "a b")(target("namedtuple"), 1)
slotted = Slotted()
slotted.left = target("slot")
both = Both()
both.right, both.extra = target("slot of a base"), target("dict beside slots")
partial = functools.partial(print, target("partial"), key=target("partial keyword"))
if hasattr(type(numbers[0]), "__weakref__"):
    weak = weakref.ref(numbers[0])
only_weak = weakref.WeakValueDictionary()
keyed = weakref.WeakKeyDictionary()
method = model.layers[0].bound
made = types.ModuleType("made")
made.inside = target("module made by hand")
sys.modules["made"] = made
variable = contextvars.ContextVar("variable")
variable.set(target("context variable"))


def closed():
    inner = target("closure")
    return lambda: inner


closure = closed()
lambda_default = lambda x=target("lambda default"): x  # noqa: E731


def closed_twice():
    first, second = target("first cell"), target("second cell")
    several, unused = [None, target("list in a cell")], []
    return lambda: (first, second, several, unused)


cells = closed_twice()
cell = types.CellType(target("cell"))


@functools.lru_cache(maxsize=64)
def bounded(*key):
    return target(f"lru_cache {key}")


@functools.cache
def unbounded(*key):
    return [target(f"cache {key}")]


for keys in ((1,), (2,), ("a",), (1, 2)):
    bounded(*keys)
    unbounded(*keys)

# what the collector does not track, or knows only in memory outside of the object
inherited = Queue([target("subclass of deque")])
simple = queues.SimpleQueue()
for i in range(12):  # the ring begins in the middle
    simple.put(target(f"SimpleQueue {i}"))
    if i < 6:
        labels.pop(id(simple.get()))
append = [target("method of C")].append
length = [target("method-wrapper")].__len__
referent = Node()
called = weakref.ref(referent, lambda _, x=target("callback of a weak reference"): x)
reference = Reference(referent)
reference.extra = target("attribute of a weak reference")
ranges = slice(None, [target("slice")])
proxy = types.MappingProxyType({"x": target("mappingproxy")})
views = {"x": target("view of a dict")}.values()
iterators = [iter([target("iterator")]), zip([target("zip")]), itertools.chain([target("chain")]), itertools.tee([target("tee")])]
pointer = ctypes.py_object(target("ctypes"))
described = [staticmethod(target("staticmethod")), property(target("property"))]
future = concurrent.futures.Future()
future.set_result(target("future"))
bound_partial = functools.partialmethod(print, target("partialmethod"))
if numpy:
    objects = numpy.array([None] + [target(f"array {i}") for i in range(300)], dtype=object)
    table = numpy.empty((2, 3), dtype=object, order="F")
    for i in range(6):
        table.flat[i] = target(f"table {i}")
    every_other = numpy.array([target(f"every other {i}") for i in range(4)], dtype=object)[::-2]
    nothing = numpy.empty((), dtype=object)
    nothing[()] = target("array without dimensions")
    numbers_only = numpy.arange(10)


def keyword_default(*, x=target("keyword default")):
    return x


def generate():
    kept = target("generator")
    yield 1
    del kept


generator = generate()
next(generator)
not_started = generate()


async def wait():
    kept = target("coroutine")
    await asyncio.sleep(0)
    del kept


coroutine = wait()
coroutine.send(None)


def fail():
    scratch = target("traceback")
    raise Error(target("exception argument"), scratch is None)


try:
    fail()
except Error as e:
    last = e

cycle = Node()
cycle.self, cycle.held = cycle, target("cycle with a name")
free = Node()
free.self, free.t = free, target("cycle without a name")
gc.disable()
del free

stop = threading.Event()


def thread(n):
    local = target(f"thread {n}")
    in_cell = target(f"cell of thread {n}")
    some = threading.local()
    some.value = target(f"thread local {n}")
    (lambda: in_cell)()
    stop.wait()
    del local


threads = [threading.Thread(target=thread, args=(n,), daemon=True) for n in range(3)]
for one in threads:
    one.start()


def locals_of_frames():
    for top in sys._current_frames().values():
        while top:
            yield top
            top = top.f_back


def pointers(at):
    """The targets and containers to which an object refers that the collector does not know."""
    words = (ctypes.c_uint64 * (type(at).__basicsize__ // 8)).from_address(id(at))
    known = set(labels) | {id(o) for o in gc.get_objects()}
    return [ctypes.cast(word, ctypes.py_object).value for word in words if word in known]


def values(kind, step, at):
    """The objects to which a step may lead."""
    name, index = step.get("name", ""), step.get("index", 0)
    if kind == "attribute":
        if isinstance(at, type):
            return [at.__dict__.get(name)]
        return [at.__dict__.get(name)] if name in getattr(at, "__dict__", {}) else [getattr(at, name, None)]
    if kind == "item":
        return [at[index]] if index < len(at) else []
    if kind == "key":
        return [v for k, v in dict.items(at) if not name or repr(k) == name]
    if kind == "a key":
        return list(dict.keys(at))
    if kind == "element":
        return gc.get_referents(at) if isinstance(at, queues.SimpleQueue) else list(at)
    if kind == "result":
        return pointers(at)
    if kind == "cache":
        return gc.get_referents(at)
    if kind == "flat":
        return [at.flat[index]]
    if kind == "callback":
        return [at.__callback__]
    if kind == "content":
        return [at.cell_contents]
    if kind == "closure":
        return [at.__closure__[index]]
    if kind == "default":
        return [getattr(at, name)]
    if kind == "self":
        return [at.__self__]
    if kind == "function":
        return [at.__func__]
    if kind == "frame":
        return [getattr(at, "tb_frame", None), getattr(at, "gi_frame", None), getattr(at, "cr_frame", None)]
    if kind == "next":
        return [at.tb_next]
    if kind == "of exception":
        return [getattr(at, name)]
    if kind == "field":
        return gc.get_referents(at) or pointers(at)
    if kind == "local":
        of = at if isinstance(at, types.FrameType) else getattr(at, "gi_frame", None) or getattr(at, "cr_frame", None)
        return [of.f_locals.get(name) if name else of.f_locals]
    raise ValueError(kind)


def wrong(path):
    at = None
    skip = False
    for i, step in enumerate(path):
        kind = step["kind"]
        if skip:  # f_locals has the content of a cell
            skip, found = False, [at]
        elif i == 0 and kind == "module":
            found = [sys.modules.get(step["name"])]
        elif i == 0 and kind == "local":
            found = [f.f_locals.get(step["name"]) if "name" in step else f.f_locals for f in locals_of_frames() if f.f_code.co_name == step["function"]]
        elif i == 0 and kind in ("thread", "garbage"):
            found = [o for o in gc.get_objects() if id(o) == step["object"]]
        else:
            found = values(kind, step, at)
        want = step["object"]
        if kind == "local" and i + 1 < len(path) and path[i + 1]["kind"] == "content" and want not in map(id, found):
            want, skip = path[i + 1]["object"], True
        found = [o for o in found if id(o) == want]
        if not found:
            return f"step {i} of {path}"
        at = found[0]
    return ""


def answer():
    print(json.dumps(labels), flush=True)
    for line in sys.stdin:
        print(json.dumps([wrong(path) for path in json.loads(line)]), flush=True)


answer()
