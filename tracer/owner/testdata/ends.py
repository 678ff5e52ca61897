"""Prints once the interpreter has dropped its modules, and waits there until its input ends."""

import os
import sys


class Last:
    def __del__(self, write=os.write, read=os.read):
        write(1, b"{}\n")
        read(0, 1)


sys.last = Last()
