"""Maps a file as code and ends at once: maps_and_ends.py FILE HOW. HOW is kept, or deleted: unlinked once it is mapped."""

import mmap
import os
import sys
import time

time.sleep(2)  # else a busy ttmem may see nothing of this process before its end
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
code = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
if how == "deleted":
    os.unlink(path)
os._exit(0)
