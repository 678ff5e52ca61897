"""Attacks by names, which end up in lists, logs and files: names.py NAME."""

import ctypes
import os
import sys
import time

from forger import *  # noqa: F403


def forge(f):
    """Makes the process known, with an allocation that lasts."""
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    f.hit("buffer_allocated", 0, b)
    time.sleep(0.3)
    forever()


def process(*words):
    """The name and the command line of a process."""
    if not words:
        os.execv(sys.executable, [HOSTILE_NAME, "-B", os.path.abspath(sys.argv[0]), "process", HOSTILE_NAME, b"\x9b\xff\xfe\x80"])
    libc.prctl(15, b"\x1b[31m\n" + FORGED[:9].encode())
    forge(Forger())


def path():
    """The path of a library."""
    forge(Forger(path=f"{HOME}/{HOSTILE_NAME}/\x1b]52;c;eA==\x07 (deleted)/libtt_metal.so"))


def release():
    """The name of a release."""
    package = HOME + "/site-packages"
    os.makedirs(f"{package}/ttnn-\x1b[2J\n{FORGED}\u202e.dist-info")
    forge(Forger(path=package + "/ttnn/build/lib/libtt_metal.so"))


def foreign_release():
    """A release read from a folder that only root can read."""
    package = HOME + "/site-packages"
    path = library(package + "/ttnn/build/lib/libtt_metal.so")
    fd = os.open(path, os.O_RDONLY)
    os.unlink(path)
    os.removedirs(package + "/ttnn/build/lib")
    os.makedirs(HOME, exist_ok=True)
    os.symlink(CONTEXT["guarded"], package)
    forge(Forger(fd=fd))


def python_frames():
    """The names and files of Python functions."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    space = {"f": f, "b": b}
    source = "def evil():\n f.hit('buffer_allocated', 0, b)\n"
    code = compile(source, HOSTILE_NAME + ".py", "exec")
    exec(code, space)
    evil = space["evil"]
    evil.__code__ = evil.__code__.replace(co_name=HOSTILE_NAME)
    evil()
    time.sleep(0.3)
    forever()


def native_frames():
    """The names of native functions."""
    name = b"a_function_with_a_long_name_to_be_replaced"
    text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "named.so"), "rb").read()
    with open(HOME + "/named.so", "wb") as file:
        file.write(text.replace(name, b"\x1b[31mred\n%s\n\xe2\x80\xae\x9b31m" % FORGED.encode() + b"x" * 14))
    named = ctypes.CDLL(HOME + "/named.so")
    named.where.restype = ctypes.c_void_p
    f = Forger()
    f.own = named.where() + 4
    f.own_size = 4
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    f.hit("buffer_allocated", 0, b, depth=4)
    time.sleep(0.3)
    forever()


def python_lies():
    """Python objects that claim to be larger than memory, and frames without end."""
    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    id_ = f.world.field(b, "unique_id_")
    sys.setrecursionlimit(100000)

    def deep(n):
        return deep(n - 1) if n else f.hit("buffer_allocated", 0, b, times=3, vary=[(id_, 1)])

    code = deep.__code__
    deep(5000)
    fake = ctypes.create_string_buffer(ctypes.string_at(id(HOSTILE_NAME), 4096), 4096)
    for length in (1 << 60, 2**63, 1 << 32, (1 << 24) - 1):
        ctypes.c_uint64.from_buffer(fake, 16).value = length  # ob_size, or length
        for original in (code.co_name, code.co_filename, code.co_qualname if hasattr(code, "co_qualname") else code.co_name):
            for offset in range(16, 256, 8):
                at = id(code) + offset
                if word(at) == id(original):
                    put(at, ctypes.addressof(fake))
                    deep(20)
                    put(at, id(original))
    attacking()
    while True:
        deep(200)
        time.sleep(0.01)


def code_flood(*words):
    """Thousands of functions that allocate, and an exec that leaves their records behind."""
    path = HOME + "/again.so"
    if not words:
        library(path)
        attacking()
    fd = os.open(path, os.O_RDONLY)
    f = Forger(fd=fd, wait=0.2)
    mesh, allocator = f.device()
    space = {"f": f, "b": f.world.buffer(mesh, allocator)}
    for i in range(3000):
        name = f"evil{i}_{time.time_ns()}"  # another one in each program
        exec(f"def {name}():\n f.hit('buffer_allocated', 0, b)\n{name}()", space)
    os.execv(sys.executable, [sys.executable, "-B", sys.argv[0], "code_flood", "again"])


def environment():
    """Variables that ttmem and the loaders of programs know."""
    if "HOSTILE_AGAIN" not in os.environ:
        environment = dict(os.environ, HOSTILE_AGAIN="1", TTMEM_SOCKET="/dev/zero", TTMEM_CACHE=CONTEXT["guarded"], TT_METAL_HOME=HOSTILE_NAME,
                           TT_METAL_CACHE=CONTEXT["guarded"], TT_METAL_LOGS_PATH=CONTEXT["guarded"], LD_LIBRARY_PATH="/\x1b[31m", LD_DEBUG="statistics",
                           VIRTUAL_ENV=CONTEXT["guarded"], PYTHONHASHSEED="0", PYTHONUNBUFFERED="1", COLUMNS="99999999", GOTRACEBACK="crash",
                           **{f"TTMEM_X{i}": HOSTILE_NAME * 100 for i in range(50)})
        os.execve(sys.executable, [sys.executable, "-B", *sys.argv], environment)
    forge(Forger())


run(globals())
