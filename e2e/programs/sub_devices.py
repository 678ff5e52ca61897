"""Loads a sub-device manager with L1 of its own, which leaves too little for a tensor. A mock device
ends the process when the manager is loaded."""

import ttnn

device = ttnn.open_device(device_id=0)
half = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 7))])
manager = device.create_sub_device_manager([ttnn.SubDevice([half])], 65536)


def in_l1(kib):
    """A tensor with so many KiB in each bank of L1."""
    banks = ttnn.get_memory_view(device, ttnn.BufferType.L1).num_banks
    return ttnn.empty([32, 32 * banks * kib // 2], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)


weights = ttnn.empty([256, 256], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
before = in_l1(64)
device.load_sub_device_manager(manager)
try:
    in_l1(1250)
except RuntimeError as e:
    print(str(e).split("backtrace")[0])
kept = in_l1(1200)
ttnn.deallocate(kept)
device.clear_loaded_sub_device_manager()
device.remove_sub_device_manager(manager)
whole = in_l1(1250)
ttnn.close_device(device)
