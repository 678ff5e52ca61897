"""Attacks by processes, threads and mappings: processes.py NAME."""

import ctypes
import os
import resource
import sys
import threading
import time

from tools import *  # noqa: F403


def executes(*words):
    """Maps a library and executes itself, again and again."""
    path = f"{HOME}/again.so"
    if not words:
        library(path)
        attacking()
    map_code(path)
    time.sleep(0.02)
    os.execv(sys.executable, [sys.executable, "-B", sys.argv[0], "executes", "again"])


def short_lived():
    """Processes that map a library and end at once."""
    path = library()
    attacking()
    while True:
        children = []
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                map_code(path)
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)


def short_runs(count=1, wait=0.3, shared=False):
    """Programs that allocate and end at once: two lines each in the log of a service."""
    from forger import Forger

    path = CONTEXT["library"] if shared else library()
    keeper = Forger(fd=os.open(path, os.O_RDONLY))  # so that the file is known
    attacking()
    while True:
        children = []
        for _ in range(int(count)):
            pid = os.fork()
            if pid == 0:
                f = Forger(fd=os.open(path, os.O_RDONLY), wait=float(wait))
                mesh, allocator = f.device()
                f.hit("buffer_allocated", 0, f.world.buffer(mesh, allocator))
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
    return keeper


def one_run():
    """One program that allocates and ends."""
    from forger import Forger

    f = Forger()
    mesh, allocator = f.device()
    f.hit("buffer_allocated", 0, f.world.buffer(mesh, allocator))
    attacking()
    time.sleep(0.3)


def forged():
    """A program that is traced, and the allocation that it makes up."""
    from forger import Forger

    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    return f, lambda: f.hit("buffer_allocated", 0, b)


def vfork_child():
    """A child of vfork that stays, with the memory of its parent, which is not resumed."""
    from forger import hits

    f, allocate = forged()
    allocate()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator, id=9)
    registers = (ctypes.c_uint64 * 12)(0, b)
    attacking()
    hits.stay(f.at("buffer_allocated"), registers, ctypes.c_void_p(f.stack))


def stopped():
    """A program that is stopped between two allocations."""
    import signal

    _, allocate = forged()
    allocate()
    attacking()
    os.kill(os.getpid(), signal.SIGSTOP)


def ptraced():
    """A program that a debugger stops at each system call, and does not resume."""
    _, allocate = forged()
    pid = os.fork()
    if pid == 0:
        libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME: the next signal stops it
        while True:
            allocate()
    os.waitpid(pid, 0)
    attacking()
    while True:
        libc.ptrace(9, pid, 0, 0)  # PTRACE_SINGLESTEP
        os.waitpid(pid, 0)


def setuid():
    """Programs that become setuid ones while they are traced."""
    path = library()
    attacking()
    while True:
        pid = os.fork()
        if pid == 0:
            map_code(path)
            time.sleep(0.02)
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
            for program in "/usr/bin/newuidmap", "/bin/mount", "/bin/su":
                if os.path.exists(program):
                    os.execv(program, [program, "--help"])
            os._exit(0)
        os.waitpid(pid, 0)


def crowd():
    """Ten thousand threads that live, each of which has allocated."""
    from forger import hits

    f, allocate = forged()
    allocate()
    mesh, allocator = f.device()
    registers = (ctypes.c_uint64 * 12)(0, f.world.buffer(mesh, allocator, id=9))
    hits.crowd(f.at("buffer_allocated"), registers, ctypes.c_long(10000))
    forever()


def unmounted():
    """A library on a file system that was unmounted while it is mapped, in a mount namespace of its own."""
    user = os.getuid()
    if libc.unshare(0x10000000 | 0x20000) != 0:  # CLONE_NEWUSER, CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {user} 1")):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    libc.mount(b"x", HOME.encode(), b"tmpfs", 0, b"")
    map_code(library())
    libc.umount2(HOME.encode(), 2)  # MNT_DETACH
    forever()


def reused_ids():
    """A process with the id of one that has ended."""
    path = library()
    attacking()
    while True:
        first = os.fork()
        if first == 0:
            map_code(path)
            time.sleep(0.05)
            os._exit(0)
        os.waitpid(first, 0)
        pid = 0
        while pid != first:
            pid = os.fork()
            if pid == 0:
                if os.getpid() == first:
                    map_code(path)
                    time.sleep(0.2)
                os._exit(0)
            os.waitpid(pid, 0)


def fork_bomb():
    """Forks as long as the limit allows, with a library mapped."""
    resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
    map_code(library())
    attacking()
    while True:
        try:
            if os.fork() == 0:
                time.sleep(0.05)
        except OSError:
            time.sleep(0.05)


def threads():
    """Threads whose names change all the time, in a process that is traced."""
    map_code(library())
    stop = threading.Event()
    names = [HOSTILE_NAME.encode()[i : i + 15] for i in range(30)]

    def rename(i):
        while not stop.wait(0.01):
            i += 1
            libc.prctl(15, names[i % len(names)])

    for i in range(200):
        threading.Thread(target=rename, args=(i,), daemon=True).start()
    forever()


def first_thread_ends():
    """The first thread ends, and others go on."""

    def go_on():
        map_code(library())
        forever()

    threading.Thread(target=go_on).start()
    libc.syscall(60, 0)


def many_mappings():
    """As many mappings of code as the kernel allows, in a process that is traced."""
    map_code(library())
    fd = os.open("/bin/true", os.O_RDONLY)
    base = memory(PAGE * 130000, PROT_NONE)
    attacking()
    for i in range(0, 120000, 2):
        try:
            memory(PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, base + i * PAGE)
        except OSError:
            break
    libc.munmap(base, PAGE * 20)
    while True:  # and each change is read again
        memory(PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, base)
        time.sleep(0.02)


def mapping_loop():
    """Maps code as fast as can be, so that the kernel's records of it are lost."""
    map_code(library())
    fd = os.open("/bin/true", os.O_RDONLY)
    attacking()
    while True:
        for _ in range(1000):
            libc.munmap(memory(PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd), PAGE)


def long_command(*words):
    """A command line of megabytes."""
    if not words:
        os.execv(sys.executable, [sys.executable, "-B", sys.argv[0], "long_command", *(["x" * 100000] * 18)])
    map_code(library())
    forever()


def generated_code():
    """Changes its code without a file, all the time."""
    map_code(library())
    attacking()
    while True:
        at = memory(PAGE * 64, PROT_READ | PROT_EXEC)
        libc.mprotect(ctypes.c_void_p(at), PAGE, PROT_READ)
        libc.munmap(at, PAGE * 64)
        time.sleep(0.001)


run(globals())
