"""Runs a program with the address of a tensor before its free, after it, and after another tensor has the address; and operations
that free what they read themselves."""

import ttnn
from device import close_device, open_device

device = open_device()
FIRST = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))})


def tensor(memory_config):
    return ttnn.empty([1, 1, 64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory_config)


def kernel(addresses):
    arguments = ttnn.RuntimeArgs()
    arguments[0][0] = addresses
    return ttnn.KernelDescriptor(
        kernel_source="void kernel_main() {}", source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE, core_ranges=FIRST,
        compile_time_args=[], runtime_args=arguments, config=ttnn.ReaderConfigDescriptor(),
    )  # fmt: skip


for memory_config in (ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG):
    a, out, scratch = (tensor(memory_config) for _ in range(3))  # SCRATCH
    addresses = [t.buffer_address() for t in (a, scratch, out)]

    def run():
        program = ttnn.ProgramDescriptor(kernels=[kernel(addresses)], semaphores=[], cbs=[])
        ttnn.generic_op([a, out], program)  # RUN

    run()
    ttnn.deallocate(scratch)  # FREED
    run()
    run()
    again = tensor(memory_config)
    run()
    moved, hole = tensor(memory_config), tensor(memory_config)
    for _ in range(3):
        moved = ttnn.move(moved)
        hole = ttnn.move(hole)
    del moved, hole
    shards = ttnn.create_sharded_memory_config(
        (1, 1, 256, 32), core_grid=ttnn.CoreGrid(y=1, x=8), strategy=ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=False
    )
    hole, moved = (ttnn.empty([1, 1, 256, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, shards) for _ in range(2))
    ttnn.deallocate(hole)
    moved = ttnn.move(moved)
    del moved
close_device(device)
