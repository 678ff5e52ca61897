"""One of a crowd: serve_crowd.py SEED END allocates and frees at random, then ends.

END is exit, crash (a segmentation fault) or wait: until it is killed.
"""

import os
import random
import signal
import sys
import time

import ttnn
from device import close_device, open_device

dice, end = random.Random(int(sys.argv[1])), sys.argv[2]
device = open_device()
print("opened", flush=True)
held = []
for _ in range(dice.randrange(50, 500)):
    if held and dice.random() < 0.4:
        ttnn.deallocate(held.pop(dice.randrange(len(held))))
    else:
        region = dice.choice([ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG])
        held.append(ttnn.empty([dice.choice([32, 64, 128])] * 2, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, region))
if end == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
while end == "wait":
    ttnn.deallocate(ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG))
    time.sleep(0.001)
if dice.random() < 0.5:
    close_device(device)
