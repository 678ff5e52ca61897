"""Runs out of memory in three ways, catches each, and goes on."""

import ttnn
from device import Checkpoints, attempt, close_device, memory, open_device

device = open_device()
check = Checkpoints()
check("opened", device)


def l1(edge, banks=64):
    return ttnn.empty([edge, edge], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)


# too little
attempt("too large", lambda: l1(32768))
check("too large", device)

# fragmented: every second tensor freed
tensors = []
while memory(device)["L1"]["largest_free"] > 100_000:
    tensors.append(l1(1024))
for tensor in tensors[::2]:
    ttnn.deallocate(tensor)
attempt("fragmented", lambda: l1(4096))
check("fragmented", device)

# a program's static region meets a tensor
operand = ttnn.empty([1, 1, 1024, 1024], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
while memory(device)["L1"]["largest_free"] >= 40_000:
    tensors.append(l1(512))
attempt("clash", lambda: ttnn.softmax(operand))
check("clash", device)

for tensor in tensors[1::2]:
    ttnn.deallocate(tensor)
works = attempt("after all", lambda: ttnn.add(operand, operand))
assert works is not None
check("after all", device)
close_device(device)
print("done")
