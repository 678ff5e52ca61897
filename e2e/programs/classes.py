"""Buffers of each class: tensors, what the program cache retains, global semaphores, a global circular
buffer, a captured trace where the device can capture one, and where it executes programs the binaries of
their kernels. It writes {} when they are there, and ends with its standard input."""

import sys

import ttnn

device = ttnn.open_device(device_id=0, l1_small_size=16384, trace_region_size=1 << 20)
image = ttnn.Tensor([0.0] * 2048, [1, 1, 64, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT).to(device)
pooled = ttnn.max_pool2d(
    input_tensor=image, batch_size=1, input_h=8, input_w=8, channels=32,
    kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1],
)
weights = ttnn.empty([32, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
copy = ttnn.clone(weights)
total = ttnn.add(weights, copy)


def cores(x, y):
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(1, 1), ttnn.CoreCoord(x, y))])


semaphores = [ttnn.create_global_semaphore(device, cores(3, 3), 0) for _ in range(2)]
sender = ttnn.CoreCoord(0, 0)
ring = ttnn.create_global_circular_buffer(device, [(sender, cores(2, 2))], 4096)
if len(sys.argv) < 2 or sys.argv[1] != "untraced":
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    result = ttnn.empty([32, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    ttnn.end_trace_capture(device, trace, cq_id=0)
print("{}", flush=True)
sys.stdin.read()
ttnn.close_device(device)
