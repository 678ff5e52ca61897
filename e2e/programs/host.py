"""Processes of many kinds on a host: host.py KIND.

Each prints its steps, and waits for a line of standard input before the next one.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading


def say(*words):
    print(*words, flush=True)


def wait():
    sys.stdin.readline()


def hold(count):
    """Buffers of 45,056 bytes in each DRAM bank."""
    import ttnn

    return [
        ttnn.empty([512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG) for _ in range(count)
    ]


def begin(count):
    """Loads the library, opens the device and holds buffers on it."""
    global device, tensors
    from device import open_device

    device = open_device()
    tensors = hold(count)
    say("holding", count)
    wait()


def end():
    """Frees the buffers and closes the device."""
    from device import close_device

    tensors.clear()
    close_device(device)
    say("closed")


def late():
    """Loads the library long after its start."""
    say("started")
    wait()
    begin(3)
    end()


def fork():
    """Its children free what they inherited, and end in different ways."""
    begin(3)
    for way in ("leave", "destructors", "close", "kill"):
        child = os.fork()
        if child == 0:
            signal.alarm(2)  # some wait for threads that are the parent's alone
            tensors.clear()
            if way == "leave":
                os._exit(0)
            elif way == "destructors":
                sys.exit(0)
            elif way == "close":
                end()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        say("child", child)
    say("forked")
    wait()
    tensors.extend(hold(2))
    say("holding", 5)
    wait()
    end()


def siblings():
    """Its children allocate at the same addresses, different numbers of buffers, and free one each."""
    begin(3)
    children = []
    ready, done = os.pipe()
    for count in (2, 4):
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            own = hold(count)
            own.pop()
            os.write(done, b"%16x" % own[0].buffer_address())
            signal.pause()
        children.append(child)
        say("child", child)
        say("address", os.read(ready, 16).decode())
    wait()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    end()


def spawn():
    """Starts programs in the ways that share its memory until they are executed."""
    begin(3)
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitpid(pid, 0)
    say("child", pid)
    child = subprocess.Popen(["/bin/true"], close_fds=False)
    child.wait()
    say("child", child.pid)
    say("spawned")
    wait()
    end()


def become():
    """Becomes another program that uses the library, and then one that does not."""
    begin(3)
    os.execv(sys.executable, [sys.executable, __file__, "become_again"])


def become_again():
    begin(2)
    os.execv("/bin/cat", ["cat"])


def threads():
    """Allocates in threads."""
    begin(0)

    def turn():
        tensors.extend(hold(5))

    started = [threading.Thread(target=turn) for _ in range(4)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    say("holding", 20)
    wait()
    end()


def first_thread_ends():
    """Its first thread ends before another one loads the library."""

    def go_on():
        say("started")
        wait()
        begin(3)
        end()
        os._exit(3)

    threading.Thread(target=go_on).start()
    exit_thread = 60
    ctypes.CDLL(None).syscall(exit_thread, 0)


def crash():
    """Reads where no memory is."""
    begin(4)
    ctypes.string_at(0)


globals()[sys.argv[1]]()
