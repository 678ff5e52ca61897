"""Writes the stack at each hit of some breakpoints, as gdb unwinds it.

gdb -batch -p PID -x gdb.py, with the breakpoints' addresses in BREAK, the file to
write in STACKS and the number of hits after which each stops in HITS. A line for
each hit: the breakpoint's place in BREAK, the thread's id, then the address and the kind of each frame. Before it
the process's code, where that has changed: lines of /proc/PID/maps.
"""

import os

import gdb

for setting in (
    "pagination off",
    "confirm off",
    "debuginfod enabled off",
    "print thread-events off",
    "detach-on-fork on",
    "follow-fork-mode parent",
    "backtrace past-main on",
    "backtrace limit unlimited",
):
    gdb.execute("set " + setting)
gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.execute("handle SIGTRAP stop print nopass", to_string=True)

KINDS = {gdb.NORMAL_FRAME: "call", gdb.INLINE_FRAME: "inlined", gdb.TAILCALL_FRAME: "tailcall", gdb.SIGTRAMP_FRAME: "signal"}

out = open(os.environ["STACKS"], "w")
maps = ""


class Stack(gdb.Breakpoint):
    def __init__(self, place, address):
        super().__init__("*" + address)
        self.place, self.left = place, int(os.environ["HITS"])

    def stop(self):
        global maps
        process, thread, _ = gdb.selected_thread().ptid
        with open(f"/proc/{process}/maps") as f:
            now = "".join(line for line in f if "x" in line.split()[1])
        if now != maps:
            maps = now
            out.write(maps)
        frames = []
        frame = gdb.newest_frame()
        while frame is not None:
            frames.append(f"{frame.pc():x}:{KINDS[frame.type()]}")
            frame = frame.older()
        out.write(f"stack {self.place} {thread} {' '.join(frames)}\n")
        self.left -= 1
        if self.left <= 0:
            self.enabled = False
        return False


for place, address in enumerate(os.environ["BREAK"].split()):
    Stack(place, address)
print("attached", flush=True)
gdb.execute("continue")
out.close()
