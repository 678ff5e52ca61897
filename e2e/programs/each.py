"""Runs programs of this folder one after the other: each.py "PROGRAM [ARGUMENT …]" …"""

import os
import subprocess
import sys

folder = os.path.dirname(os.path.abspath(__file__))
for command in sys.argv[1:]:
    name, *arguments = command.split()
    subprocess.run([sys.executable, os.path.join(folder, name), *arguments], check=True)
