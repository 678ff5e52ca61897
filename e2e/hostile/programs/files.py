"""Attacks through files that the attacker has mapped: files.py NAME."""

import fcntl
import os
import signal
import threading
import time

from tools import *  # noqa: F403

F_SETLEASE = 1024


def lease(path):
    """Takes a write lease: whoever opens the file waits until the lease is given up."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(path, os.O_RDWR)
    fcntl.fcntl(fd, F_SETLEASE, fcntl.F_WRLCK)
    return fd


def map_leased(path):
    fd = lease(path)
    memory(os.fstat(fd).st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
    return fd


def leased_file():
    path = HOME + "/leased"
    with open(path, "wb") as f:
        f.write(b"x" * 8192)
    map_leased(path)
    forever()


def leased_library():
    map_leased(library())
    forever()


def leased_beside_library():
    """A leased file in a process that is traced: its code is read for stacks."""
    map_code(library())
    time.sleep(1)
    path = HOME + "/leased"
    with open(path, "wb") as f:
        f.write(open("/bin/true", "rb").read())
    map_leased(path)
    forever()


def fifo_at_path():
    """The path of a mapped library becomes a FIFO."""
    path = library()
    fd = os.open(path, os.O_RDONLY)
    os.unlink(path)
    os.mkfifo(path)
    memory(os.fstat(fd).st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
    forever()


def fifo_as_package():
    """FIFOs and devices where the release of a library is looked for."""
    package = HOME + "/site-packages"
    path = library(package + "/ttnn/build/lib/libtt_metal.so")
    os.mkfifo(package + "/ttnn-1.dist-info")
    os.symlink("/dev/zero", package + "/ttnn-2.dist-info")
    map_code(path)
    forever()


def overwritten():
    """Overwrites libraries while they are traced, again and again."""
    for _ in range(6 if LONG else 2):
        path = library()
        map_code(path)
        time.sleep(0.7)
        with open(path, "r+b") as f:
            f.write(os.urandom(1 << 20))
        attacking()
    forever()


def sparse_library():
    """Libraries of a terabyte, which takes no room."""
    for _ in range(2):
        path = library()
        size = os.path.getsize(path)
        os.truncate(path, 1 << 40)
        fd = os.open(path, os.O_RDONLY)
        memory(size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
    forever()


def socket_at_path():
    """The path of a mapped library becomes a socket, and its folder a FIFO's."""
    import socket

    path = library(HOME + "/site-packages/ttnn/build/lib/libtt_metal.so")
    fd = os.open(path, os.O_RDONLY)
    os.unlink(path)
    os.chdir(os.path.dirname(path))
    socket.socket(socket.AF_UNIX).bind("libtt_metal.so")
    os.mkfifo(HOME + "/site-packages/ttnn-3.dist-info")
    memory(os.fstat(fd).st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
    forever()


def deleted():
    """Maps libraries that have no name any more."""
    for _ in range(6 if LONG else 2):
        path = library()
        fd = os.open(path, os.O_RDONLY)
        os.unlink(path)
        memory(os.fstat(fd).st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd)
        os.close(fd)
        attacking()
    forever()


def truncated():
    """Truncates libraries to nothing while they are read."""
    for delay in (0, 0.01, 0.05, 0.2, 0.5, 1) if LONG else (0.01, 0.2):
        path = library()
        map_code(path)
        time.sleep(delay)
        os.truncate(path, 0)
        attacking()
    forever()


def resized():
    """A file whose size changes all the time, in a process that is traced."""
    map_code(library())
    path = HOME + "/resized"
    text = open("/bin/true", "rb").read()

    def resize():
        while True:
            with open(path, "wb") as f:
                f.write(text)
            os.truncate(path, 100)

    threading.Thread(target=resize, daemon=True).start()
    attacking()
    while True:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT)
        libc.munmap(memory(PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd), PAGE)
        os.close(fd)
        time.sleep(0.005)


def many_libraries(count):
    """More library files than there are slots."""
    attacking()
    for _ in range(int(count)):
        map_code(library())
        time.sleep(0.05)
    forever()


def many_files():
    """Maps thousands of different small files as code."""
    attacking()
    while True:
        path = f"{HOME}/small{next(numbers)}"
        with open(path, "wb") as f:
            f.write(b"\x7fELF" + b"x" * 100)
        libc.munmap(map_code(path), 104)
        os.unlink(path)


run(globals())
