"""Events that cost an attacker a microsecond, and the tracer much more: costly.py NAME."""

from forger import *  # noqa: F403


def again(f, *hits):
    """Hits probes without end."""
    attacking()
    while True:
        for probe, arguments, more in hits:
            f.hit(probe, *arguments, **more)


def closes():
    """Opens and closes a device while the process has many live buffers on another one, of which each close looks at all."""
    f = Forger()
    f.buffers(*f.device(), times=50 * 4096)
    allocator = f.world.allocator()
    mesh, cell = f.world.mesh([0], [allocator]), f.world.object(64)
    put(cell, allocator)
    again(f, ("device_ready", (0, mesh, cell), {}), ("allocator_clear", (allocator,), {}))


def replays(programs=30000, chips=1):
    """Replays of a trace of many programs, also while buffers in L1 come and go."""
    f = Forger()
    mesh, allocator = f.device(range(int(chips)))
    program, id = f.program()
    number = f.world.object(64)
    put(number, 77)
    buffer = f.world.buffer(mesh, allocator, kind=1)
    f.hit("program_track", 0, program, mesh)
    f.hit("trace_begin", mesh, 0, number)
    f.hit("program_track", 0, program, mesh, times=int(programs), vary=[(id, 1)])
    f.hit("trace_end", mesh, 0, number)
    time.sleep(1)
    again(f, ("trace_replay", (mesh, 0, number), {"times": 1000}), ("buffer_allocated", (0, buffer), {}))


def traces(chips=200):
    """Runs of programs while a thousand traces on nearly the same chips are captured."""
    f = Forger()
    mesh, _ = f.device(range(int(chips)))
    few, _ = f.device(range(int(chips) - 1))
    program, _ = f.program()
    number = f.world.object(64)
    f.hit("program_track", 0, program, few)
    f.hit("trace_begin", few, 0, number, times=1000, vary=[(number, 1)])
    time.sleep(1)
    again(f, ("program_track", (0, program, mesh), {"times": 20000}))


def banks(allocators=250, chips=256):
    """A region of an allocator becomes smaller and larger, which changes the capacities of many chips with many allocators."""
    f = Forger()
    w = f.world
    mesh, cell, kind = w.mesh(list(range(int(chips)))), w.object(64), w.object(64)
    put(kind, 1)
    for _ in range(int(allocators)):
        last = w.allocator()
        put(cell, last)
        f.hit("device_ready", 0, mesh, cell)
    time.sleep(1)
    again(f, ("banks_shrink", (last, kind, 1 << 20), {}), ("banks_reset", (last, kind), {}))


def kernels(chips=1024):
    """Kernels that are loaded again and again on many chips."""
    f = Forger()
    mesh, _ = f.device(range(int(chips)))
    again(f, ("program_configure", (mesh, f.program()[0], 0), {"times": 50000}))


def compiled():
    """Programs that are compiled and never loaded."""
    f = Forger()
    mesh, _ = f.device()
    program = f.world.object()
    again(f, ("program_compiled", (program, mesh), {"times": 50000, "vary": [(f.world.field(program, "ProgramImpl.id"), 1)]}))


def buffers(chips=256):
    """Buffers on many chips."""
    f = Forger()
    mesh, allocator = f.device(range(int(chips)))
    buffer = f.world.buffer(mesh, allocator)
    again(f, ("buffer_allocated", (0, buffer), {"times": 50000, "vary": [(f.world.field(buffer, "unique_id_"), 1)]}))


def programs(chips=256):
    """Runs of programs on many chips."""
    f = Forger()
    mesh, _ = f.device(range(int(chips)))
    again(f, ("program_track", (0, f.program()[0], mesh), {"times": 50000}))


def clears():
    """Ever new allocators end while the memory of the process is read, which takes long."""
    memory(1 << 45)
    f = Forger()
    at = f.world.object(64)
    again(f, ("allocator_clear", (at << 20,), {"times": 1 << 30, "slide": [(0, 64)]}))


run(globals())
