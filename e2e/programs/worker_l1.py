"""Needs L1: worker_l1.py tensors|buffers|kernels [WORKER_L1_SIZE] prints WORKED.

Tensors take most of L1 (tensors), circular buffers of a program reach up to tensors (buffers), or the arguments of a
program's kernels are in the way of all that is for workers (kernels), which the device then has without a size.
"""

import sys

import ttnn
from device import attempt, close_device

need = sys.argv[1]
sizes = {"worker_l1_size": int(sys.argv[2])} if len(sys.argv) > 2 else {}
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
if need == "kernels" and not sizes:
    try:
        ttnn.open_device(device_id=0, worker_l1_size=1 << 30)
    except RuntimeError as error:
        sizes["worker_l1_size"] = int(str(error).split("info:\n")[-1].split("\nbacktrace")[0].split()[-1])
device = ttnn.open_device(device_id=0, **sizes)


def tensor(tiles, memory):
    return ttnn.empty([tiles * 32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


def circular(size):
    a = tensor(1, DRAM)
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0))})
    cb = ttnn.CBDescriptor(size, cores, [ttnn.CBFormatDescriptor(0, ttnn.bfloat16, 2048)])
    kernel = ttnn.KernelDescriptor(
        kernel_source="void kernel_main() {}", source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=cores, compile_time_args=[], runtime_args=[], config=ttnn.ReaderConfigDescriptor())  # fmt: skip
    return ttnn.generic_op([a, a], ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[cb]))


def work():
    held = [tensor(64 * 32, L1) for _ in range(16 if need == "buffers" else 18)]  # TENSORS
    if need == "buffers":
        circular(64 * 2048)  # BUFFERS
    return held


def concat():
    return ttnn.concat([tensor(1, DRAM) for _ in range(60)], dim=1)  # KERNELS


if attempt(need, concat if need == "kernels" else work):
    print("WORKED", flush=True)
close_device(device)
