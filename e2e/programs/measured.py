"""Measures itself with ttmem.step() and the functions that PyTorch's users know, and prints what they say, beside marks
and the library's own figures."""

import json
import os
import threading
import time

import marks  # noqa: F401: where the package is
import ttnn
from device import close_device, memory, open_device

import ttmem


def tensor(device, edge, config=ttnn.DRAM_MEMORY_CONFIG):
    return ttnn.empty([1, 1, edge, edge], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, config)


def said(step):
    return {
        "measured": step.measured, "lost": step.lost, "peaks": step.peaks, "chips": step.chips,
        "lines": {region: [[one.bytes, one.name, one.static] for one in lines] for region, lines in step.lines.items()},
        "left": [[one.region, one.bytes, one.buffers, one.name, os.path.basename(one.file), one.line] for one in step.left],
        "failures": [[one.region, one.size_bytes, one.name] for one in step.failures], "text": repr(step),
    }


figures = {"absent": ttmem.memory_allocated()}
device = open_device()
weights = tensor(device, 512)
figures["weights"] = [ttmem.memory_allocated(), ttmem.memory_allocated(0), ttmem.memory_allocated(device)]
began = time.monotonic()
ttmem.mark("a")
with ttmem.step("outer") as outer:
    temporary = tensor(device, 1024)
    with ttmem.step("inner") as inner:
        kept = ttnn.add(weights, weights)  # line: kept
        in_l1 = ttnn.to_memory_config(kept, ttnn.L1_MEMORY_CONFIG)
        del in_l1
    temporary.deallocate()
ttmem.mark("b")
figures["seconds"] = time.monotonic() - began
figures["outer"], figures["inner"] = said(outer), said(inner)
figures["peak"] = {region: ttmem.max_memory_allocated(region=region) for region in ("DRAM", "L1")}
figures["now"] = {region: ttmem.memory_allocated(device, region) for region in ("DRAM", "L1")}
figures["library"] = {
    region: view["allocated_per_bank"] * (view["banks"] if region == "DRAM" else 1) for region, view in memory(device).items()
}
ttmem.reset_peak_memory_stats()
figures["after reset"] = ttmem.max_memory_allocated()

with ttmem.step("fails") as fails:
    try:
        ttnn.empty([1, 1, 1 << 17, 1 << 18], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    except RuntimeError:
        pass
figures["fails"] = said(fails)


def another():
    with ttmem.step("thread") as step:
        del_me = tensor(device, 256)
        del_me.deallocate()
    figures["thread"] = said(step)


with ttmem.step("around"):
    thread = threading.Thread(target=another)
    thread.start()
    thread.join()

# a child has a measurement of its own, and leaves that of its parent alone
child = os.fork()
if child == 0:
    try:
        os._exit(not ttmem.max_memory_allocated() >= 0)
    except BaseException as error:
        print(error, flush=True)
        os._exit(2)
figures["child"] = os.waitpid(child, 0)[1]
try:
    ttmem.memory_allocated(7)
except ValueError as error:
    figures["chip"] = str(error)
figures["still"] = ttmem.memory_allocated()
close_device(device)
print("measured " + json.dumps(figures))
