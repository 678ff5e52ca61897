"""Fills L1_SMALL with the program cache, by an operation of one shape after the other: small.py SIZE.

Prints how many fit, and how many more after the program cache was cleared.
"""

import sys

import ttnn

device = ttnn.open_device(device_id=0, l1_small_size=int(sys.argv[1]))


def pool(edge):
    x = ttnn.empty([1, 1, edge * edge, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    ttnn.max_pool2d(input_tensor=x, batch_size=1, input_h=edge, input_w=edge, channels=32, kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1])


def fill(edges):
    done = 0
    try:
        for edge in edges:
            pool(edge)
            done += 1
    except RuntimeError:
        pass
    return done


first = fill(range(8, 60, 2))
device.clear_program_cache()
print("FIT", first, fill(range(8 + 2 * first, 12 + 2 * first, 2)), flush=True)
ttnn.close_device(device)
