"""Memory that never comes: a file system of the attacker's own that does not answer reads.

fuse.py NAME. The rig mounts it, as the setuid program fusermount does for ordinary users: in a
user namespace of the attacker's own, reads by root would fail at once, unless an overlay does them.
"""

import ctypes
import os
import struct
import sys
import time

from forger import *  # noqa: F403

SIZE = 1 << 20


def serve(fd):
    """Answers all but reads."""
    while True:
        try:
            request = os.read(fd, 1 << 20)
        except OSError:
            return
        length, op, unique, node = struct.unpack_from("<IIQQ", request)
        attributes = struct.pack("<QQQQQQIIIIIIIIII", 2 if node != 1 else 1, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0,
                                 0o100777 if node != 1 else 0o40777, 1, 0, 0, 0, PAGE, 0)
        answer = b""
        if op == 26:  # INIT
            answer = struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 10, 10, 1 << 16, 1, 16, 0, 0, *([0] * 7))
        elif op == 1:  # LOOKUP
            attributes = struct.pack("<QQQQQQIIIIIIIIII", 2, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0, 0o100777, 1, 0, 0, 0, PAGE, 0)
            answer = struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes
        elif op == 3:  # GETATTR
            answer = struct.pack("<QII", 3600, 0, 0) + attributes
        elif op in (14, 27):  # OPEN, OPENDIR
            answer = struct.pack("<QII", 1, 0, 0)
        elif op == 17:  # STATFS
            answer = bytes(80)
        elif op == 15:  # READ
            print("process", struct.unpack_from("<I", request, 32)[0], "waits", file=sys.stderr, flush=True)
            continue
        elif op in (2, 36):  # FORGET, INTERRUPT
            continue
        os.write(fd, struct.pack("<IiQ", 16 + len(answer), 0 if op in (26, 1, 3, 14, 17, 27, 18, 25, 29) else -38, unique) + answer)


def mounted():
    """Mounts the file system, and opens its file."""
    point = HOME + "/silent"
    os.makedirs(point, exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    print("mount", fd, point, flush=True)  # which fusermount would do for every user
    sys.stdin.readline()
    start_server(fd)
    return os.open(point + "/file", os.O_RDWR)


def start_server(fd):
    if os.fork() == 0:  # threads of this process would have to answer its own faults
        serve(fd)
        os._exit(0)
    os.close(fd)  # so that the file system ends with the child


def mount(kind, point, options=""):
    if libc.mount(kind.encode(), point.encode(), kind.encode(), 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mounting " + kind + ": " + os.strerror(ctypes.get_errno()))


def silent_memory(size=SIZE, at=None):
    fd = mounted()
    return memory(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, at)


def late():
    """A device that leads to memory that never comes."""
    w = World()
    never = silent_memory()
    w.expect()
    for chip in range(4):
        mesh = w.mesh([chip], [w.allocator()])
        put(w.field(mesh, "MeshDevice.devices"), never, never + 8 * LAYOUT["mesh_stride"])
    w.attach()
    forever()


def program():
    """A program that is read at an event, from memory that never comes."""
    never = silent_memory()
    f = Forger()
    mesh, _ = f.device()
    program = f.world.object(1 << 16)
    # the kernel side reads what is here, and user space what it leads to
    for name in FIELDS:
        if name.startswith("ProgramImpl.") and len(FIELDS[name]) == 1:
            put(program + FIELDS[name][0], never, never + 4096)
    id = FIELDS["ProgramImpl.id"][-1]
    put(program + id, 7)
    attacking()
    while True:
        f.hit("program_compiled", program, mesh)
        f.hit("program_binaries", program, mesh)
        time.sleep(0.1)


def command_line(*words):
    """A command line in memory that never comes."""
    if not words:  # with whole pages of arguments, so that nothing else is there
        os.execv(sys.executable, [sys.executable, "-B", sys.argv[0], "command_line", "x" * 40000])
    path = library()
    fd = mounted()
    text = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
    start, end = int(text[45]), int(text[46])  # arg_start, arg_end
    first, last = (start + PAGE - 1) & -PAGE, end & -PAGE
    memory(last - first, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, first)
    map_code(path)
    forever()


def code():
    """Code that never comes."""
    memory(SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, mounted())
    map_code(library())
    forever()


def overlay():
    """Code that never comes, below an overlay, which reads with the rights of the user who mounted it."""
    path, user = library(), os.getuid()
    if libc.unshare(0x10000000 | 0x20000) != 0:  # CLONE_NEWUSER, CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {user} 1")):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    mount("tmpfs", "/mnt")
    for name in "lower", "upper", "work", "merged":
        os.mkdir("/mnt/" + name)
    fd = os.open("/dev/fuse", os.O_RDWR)
    mount("fuse", "/mnt/lower", f"fd={fd},rootmode=40000,user_id=0,group_id=0")
    start_server(fd)
    mount("overlay", "/mnt/merged", "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work,userxattr")
    memory(SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, os.open("/mnt/merged/file", os.O_RDONLY))
    map_code(path)
    forever()


def interpreter():
    """An interpreter whose data never comes."""
    fd = mounted()
    path = CONTEXT.get("python")
    if not path:
        raise SystemExit("no interpreter to make up")
    code = os.open(path, os.O_RDONLY)
    size = os.fstat(code).st_size
    at = 0x10000000
    memory(CONTEXT["python_end"], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, at)
    for offset, address, length in CONTEXT["python_code"]:
        memory(length, PROT_READ | PROT_EXEC, MAP_PRIVATE, code, at + address, offset)
    memory(PAGE * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, at + (CONTEXT["python_key"] & -PAGE))
    map_code(library())
    forever()


run(globals())
