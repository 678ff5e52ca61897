"""Shared by the test programs: a device of the board's shape, and checkpoints."""

import json
import os
import sys
import time

import ttnn

REGIONS = ("DRAM", "L1", "L1_SMALL", "TRACE")


def open_device(l1_small_size=32768, trace_region_size=0):
    """The board's chips as one device; their number comes from TTMEM_MESH, as 1x8."""
    rows, cols = (int(n) for n in os.environ.get("TTMEM_MESH", "1x1").split("x"))
    kwargs = dict(l1_small_size=l1_small_size, trace_region_size=trace_region_size)
    if rows * cols == 1:
        return ttnn.open_device(device_id=0, **kwargs)
    return ttnn.open_mesh_device(ttnn.MeshShape(rows, cols), **kwargs)


def close_device(device):
    if os.environ.get("TTMEM_MESH", "1x1") == "1x1":
        ttnn.close_device(device)
    else:
        ttnn.close_mesh_device(device)


def idle():
    """Waits for half a second, as a server does between requests; in a test that has to see more, until a file exists.
    The folder of that file has another one from then on, named idle."""
    time.sleep(0.5)
    if file := os.environ.get("TTMEM_IDLE_UNTIL"):
        open(os.path.join(os.path.dirname(file), "idle"), "w").close()
        while not os.path.exists(file):
            time.sleep(0.05)


def chips(device):
    return [int(i) for i in device.get_device_ids()]


def memory(device):
    """What the library's own allocator counts, in bytes of each bank."""
    views = {}
    for region in REGIONS:
        view = ttnn._ttnn.device.GetMemoryView(device, getattr(ttnn.BufferType, region))
        views[region] = {
            "banks": int(view.num_banks),
            "bytes_per_bank": int(view.total_bytes_per_bank),
            "allocated_per_bank": int(view.total_bytes_allocated_per_bank),
            "free": int(view.total_bytes_free_per_bank),
            "largest_free": int(view.largest_contiguous_bytes_free_per_bank),
            "blocks": blocks(view),
        }
    return views


def blocks(view):
    """Offset and size of what is allocated; None where the release cannot tell Python."""
    try:
        return [[int(b["address"]), int(b["size"])] for b in view.block_table if b["allocated"] == "yes"]
    except TypeError:
        return None


class Checkpoints:
    """Writes a line of JSON for each checkpoint to the file TTMEM_CHECKPOINTS, if there is one."""

    def __init__(self):
        self.file = open(os.environ.get("TTMEM_CHECKPOINTS", os.devnull), "w")
        self.count = 0

    def __call__(self, name, *devices):
        # the time stands between two quiet moments: nothing is allocated around it
        time.sleep(0.002)
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        record = {
            "name": name,
            "time_ns": now,
            "devices": [{"chips": chips(d), "regions": memory(d)} for d in devices],
        }
        time.sleep(0.002)
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        self.count += 1


def attempt(what, function):
    """Runs a step that some releases or boards refuse; says so and goes on."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001: whatever the library throws
        line = str(error).strip().split("\n")
        print(f"refused: {what}: {line[0][:120]}", file=sys.stderr)
        return None
