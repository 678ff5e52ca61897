"""Runs an attack with many user ids, as a user who has a range in /etc/subuid can: subordinate.py N PROGRAM NAME...

The rig maps the ids, as the setuid program newuidmap does for such users.
"""

import os
import sys

from tools import *  # noqa: F403

count, program, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
os.chmod(HOME, 0o777)
inside, ready = os.pipe(), os.pipe()
if os.fork() == 0:
    if libc.unshare(0x10000000) != 0:  # CLONE_NEWUSER
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    os.write(inside[1], b"%d" % os.getpid())
    os.read(ready[0], 1)
    for i in range(1, count + 1):
        if os.fork() == 0:
            os.setresgid(i, i, i)
            os.setresuid(i, i, i)
            path = os.path.join(os.path.dirname(os.path.abspath(__file__)), program)
            os.execv(sys.executable, [sys.executable, "-B", path, *words])
else:
    print("ids", os.read(inside[0], 20).decode(), flush=True)
    sys.stdin.readline()
    os.write(ready[1], b"x")
while True:
    time.sleep(1)
