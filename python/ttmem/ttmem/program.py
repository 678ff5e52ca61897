"""Where the program ttmem is."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def find_program(name: str = "ttmem") -> str | None:
    """The path of the program: of the wheel that this package is from, even if its folder is not in the PATH, else
    one in the PATH; None if there is none. A name with a / is a path."""
    if os.path.dirname(name):
        return shutil.which(name)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", "posix_user"),  # pip install --user
        os.path.join(package, "bin"),  # pip install --target
    ]
    return shutil.which(name, path=os.pathsep.join(filter(None, folders))) or shutil.which(name)


def main() -> None:
    """python -m ttmem runs the program."""
    program = find_program()
    if program is None:
        sys.exit("ttmem: no program ttmem in this installation or the PATH: install the wheel of a release, or a package of it")
    os.execv(program, [program, *sys.argv[1:]])
