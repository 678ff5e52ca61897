"""Attacks on the service's socket: service.py NAME."""

import array
import os
import random
import socket
import ssl
import subprocess
import threading
import time

from tools import *  # noqa: F403

GET = "GET /v1/%s HTTP/1.1\r\nHost: x\r\n\r\n"


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(CONTEXT["socket"])
    return s


def threads(number, ask):
    """Calls ask again and again in so many threads, whatever the service answers."""

    def again(i):
        while True:
            try:
                ask(i)
            except OSError:
                pass

    for i in range(number):
        threading.Thread(target=again, args=(i,), daemon=True).start()
    forever()


def half_open():
    """A thousand connections without a request, or with half of one."""
    kept = []
    for i in range(1000):
        try:
            s = connect()
            s.sendall([b"", b"GET /v1/sn", b"GET /v1/health HTTP/1.1\r\nX: "][i % 3])
            kept.append(s)
        except OSError:
            pass
        if i == 200:
            attacking()
    forever()


def streams():
    """What a loop of short commands under ttmem run does, in 40 processes: streams that begin with all of the state, and end."""

    def begin(_):
        with connect() as s:
            s.sendall((GET % "stream").encode())
            s.recv(1 << 16)

    threads(40, begin)


def opened():
    """Asks to prepare for libraries that are none: what is no file, is not open, or is damaged; and for commands: its own
    child, again and again, as many as it can start, ones that ended, and others' processes."""
    damaged = os.path.join(HOME, "libtt_metal.so")
    with open(damaged, "wb") as f:
        f.write(open(CONTEXT["library"], "rb").read(1 << 20))
    endless = os.memfd_create("endless")
    os.ftruncate(endless, 1 << 40)
    opens = [os.open(p, os.O_RDONLY) for p in (HOME, "/dev/zero", "/proc/self/mem", damaged, CONTEXT["library"])]
    opens += [endless, os.pipe()[0], connect().fileno(), 10**6]
    children = [subprocess.Popen(["sleep", "1000"]) for _ in range(200)] + [subprocess.Popen("true") for _ in range(20)]
    commands = [p.pid for p in children] + [1, 2, os.getpid(), os.getppid(), 2**31 - 1]

    def ask(i):
        with connect() as s:
            fd, pid = opens[i % len(opens)], commands[i % len(commands)]
            for what in b"fd=%d" % fd, b"pid=%d" % pid, b"pid=%d&fd=%d" % (pid, fd):
                s.sendall(b"POST /v1/prepare?%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % what)
                s.recv(1 << 16)

    threads(40, ask)


def slow():
    """Requests of one byte at a time, and answers that are read so."""
    kept = []
    for _ in range(30):
        s = connect()
        s.sendall((GET % "snapshot").encode() * 20)
        kept.append(s)
    attacking()
    while True:
        for s in kept:
            try:
                s.recv(1)
                s.send(b"G")
            except OSError:
                pass
        time.sleep(0.2)


def unread():
    """Streams that nobody reads, opened again whenever they are closed."""
    kept = []
    attacking()
    while True:
        try:
            s = connect()
            s.sendall((GET % random.choice(["stream", "state", "snapshot"])).encode())
            kept = kept[-40:] + [s]
        except OSError:
            pass
        time.sleep(0.01)


def busy():
    """As many answers as can be had."""

    def ask(_):
        s = connect()
        while True:
            s.sendall((GET % random.choice(["snapshot", "health", "state"])).encode())
            if not s.recv(1 << 16):
                break

    threads(8, ask)


def flood():
    """Answers of each kind, as many at once as can be had, over both ways, and half of them not read."""
    paths = ["snapshot", "state", "stream", "health", "../metrics", "../metrics?processes=1000", "../debug/pprof/device_memory",
             "../debug/pprof/device_memory_alloc?region=all&seconds=1", "../"]
    unverified = ssl._create_unverified_context()
    host, port = CONTEXT["http"].rsplit(":", 1)
    kept = {}  # open until its thread has another one

    def ask(i):
        kept[i] = s = unverified.wrap_socket(socket.create_connection((host, port), 5)) if i % 2 == 0 else connect()
        path = ("/v1/" + random.choice(paths)).replace("/v1/../", "/")
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if random.random() < 0.5:
            s.recv(1 << 16)

    threads(24, ask)


def pipelines():
    """Thousands of requests in a connection, whose answers are read late."""

    def ask(_):
        s = connect()
        s.sendall((GET % "snapshot").encode() * 2000)
        time.sleep(0.2)
        while s.recv(1 << 20):
            pass

    threads(8, ask)


def profiles():
    """Profiles of minutes of a process with as many call stacks as it can have, which the service holds."""
    from forger import Forger

    f = Forger()
    mesh, allocator = f.device()
    b = f.world.buffer(mesh, allocator)
    f.hit("buffer_allocated", 0, b, times=60000, vary=[(f.world.field(b, "unique_id_"), 1)], depth=30)

    def ask(_):
        s = connect()
        s.sendall(b"GET /debug/pprof/device_memory_alloc?region=all&seconds=300 HTTP/1.1\r\nHost: x\r\n\r\n")
        s.settimeout(60)
        s.recv(1)

    threads(8, ask)


def garbage():
    """Bytes that are no request, requests with bodies, and descriptors."""
    dice = random.Random(1)
    attacking()
    while True:
        try:
            s = connect()
            kind = dice.randrange(4)
            if kind == 0:
                s.sendall(dice.randbytes(1 << 14))
            elif kind == 1:
                s.sendall(b"POST /v1/mark?name=x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n")
            elif kind == 2:
                s.sendall(b"GET /v1/../../etc/shadow HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
            else:
                fds = array.array("i", [os.open("/dev/null", os.O_RDONLY) for _ in range(200)])
                s.sendmsg([b"GET"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                for fd in fds:
                    os.close(fd)
            s.close()
        except OSError:
            pass


def endless_header():
    """A header that does not end, from many connections."""

    def send(_):
        s = connect()
        s.sendall(b"GET /v1/health HTTP/1.1\r\n")
        while True:
            s.sendall(b"X: " + b"x" * 1000 + b"\r\n")

    threads(8, send)


def marks():
    """Marks as many and as odd as may be."""
    from urllib.parse import quote

    names = ["m%d", HOSTILE_NAME + "%d", "\u00ad%d", "x" * 128, "%%s%%n%d", "<script>%d", "../%d", "ａ\u0301%d"]
    attacking()
    i = 0
    while True:
        try:
            s = connect()
            for _ in range(100):
                i += 1
                name = names[i % len(names)]
                name = name % i if "%d" in name else name
                s.sendall(f"POST /v1/mark?name={quote(name)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                if not s.recv(4096):
                    break
        except OSError:
            pass


def owners():
    """Searches as many as can be had, of own processes and of others."""
    dice = random.Random(1)

    def ask(_):
        s = connect()
        while True:
            query = dice.choice(["", "?pid=1", f"?pid={dice.randrange(1 << 22)}", "?" + "pid=7&" * 600, f"?pid={os.getpid()}"])
            s.sendall(f"POST /v1/owners{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if not s.recv(4096):
                break

    threads(8, ask)


def owners_of_streams():
    """Streams that want owners at peaks and at marks, end and begin again, with as many marks as can be set."""
    dice = random.Random(1)

    def ask(i):
        with connect() as s:
            if i % 2:
                when = dice.choice(["peaks", "marks", "", "x" * 1000, "marks&owners=peaks"])
                s.sendall((GET % ("stream?owners=" + when)).encode())
                for _ in range(dice.randrange(10)):
                    s.recv(1 << 16)
            else:
                for n in range(100):
                    s.sendall(b"POST /v1/mark?name=m%d HTTP/1.1\r\nHost: x\r\n\r\n" % n)
                    s.recv(4096)

    threads(16, ask)


run(globals())
