"""Each kind of failure that is not an allocator's, and one that is not about memory: refused.py STATIC TRACE HOGS.

Prints a line for each exception: its line in this file and its text. STATIC is the size of a circular
buffer, TRACE the size of the trace region, and HOGS the number of tensors in L1 beside a layer_norm.
"""

import json
import sys
import traceback

import ttnn

static, trace, hogs = (int(a) for a in sys.argv[1:4])
T, R, DRAM, L1 = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT, ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG


def attempt(f):
    try:
        f()
    except RuntimeError as e:
        line = [s.lineno for s in traceback.extract_tb(e.__traceback__) if s.filename == __file__][-1]
        text = str(e).split("info:\n")[-1].split("\nbacktrace")[0].strip()
        print("THREW", json.dumps({"line": line, "text": text}), flush=True)
        return text


def empty(shape, layout=T, config=DRAM):
    return ttnn.empty(shape, ttnn.bfloat16, layout, device, config)


def cores(x0, x1):
    return ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(x0, 0), ttnn.CoreCoord(x1, 0))})


def circular(size):
    a = empty([1, 1, 32, 32])
    cb = ttnn.CBDescriptor(size, cores(0, 1), [ttnn.CBFormatDescriptor(0, ttnn.bfloat16, 2048)])
    kernel = ttnn.KernelDescriptor(
        kernel_source="void kernel_main() {}", source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=cores(0, 1), compile_time_args=[], runtime_args=[], config=ttnn.ReaderConfigDescriptor())
    ttnn.generic_op([a, a], ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[cb]))


device = ttnn.open_device(device_id=0, trace_region_size=trace)
wide = empty([1, 1, 64, 400000], R)
attempt(lambda: circular(static))
attempt(lambda: ttnn.repeat(wide, (1, 1, 2, 1)))
attempt(lambda: ttnn.pad(wide, [(0, 0), (0, 0), (0, 0), (0, 32)], 0.0))
attempt(lambda: ttnn.reshape(wide, [1, 1, 64, 3]))
tensors = [empty([1, 1, 64 * 32, 256], T, L1) for _ in range(hogs)]
row = empty([1, 1, 32, 8192])
attempt(lambda: ttnn.layer_norm(row))
del tensors
kept = []


def capture():
    identity = ttnn.begin_trace_capture(device, cq_id=0)
    kept.append((empty([len(kept) * 32 + 32, 256]), identity))
    ttnn.end_trace_capture(device, identity, cq_id=0)


for _ in range(6):
    attempt(capture)
ttnn.close_device(device)

attempt(lambda: ttnn.open_device(device_id=0, l1_small_size=1 << 30))
text = attempt(lambda: ttnn.open_device(device_id=0, worker_l1_size=1 << 30))
# all of L1 is for tensors and circular buffers: nothing is left for kernels and their arguments
device = ttnn.open_device(device_id=0, worker_l1_size=int(text.split()[-1]))
tiles = [empty([1, 1, 32, 32]) for _ in range(60)]
attempt(lambda: ttnn.concat(tiles, dim=3))
ttnn.close_device(device)
print("done")
