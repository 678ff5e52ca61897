"""Starts a program as the process with a given id, in a container with its id there before it: spawn_as.py [PID,]PID PROGRAM [ARG…]."""

import ctypes
import os
import sys


class CloneArgs(ctypes.Structure):
    """struct clone_args of clone3(2)."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
        )
    ]


CLONE3, SIGCHLD = 435, 17
ids = [int(id) for id in sys.argv[1].split(",")]
tids = (ctypes.c_int * len(ids))(*ids)
args = CloneArgs(exit_signal=SIGCHLD, set_tid=ctypes.addressof(tids), set_tid_size=len(ids))
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall(CLONE3, ctypes.byref(args), ctypes.sizeof(args))
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
if pid < 0:
    sys.exit(f"process {ids}: {os.strerror(ctypes.get_errno())}")
os.waitpid(pid, 0)
