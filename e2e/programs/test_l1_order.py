"""Tests whose peaks of L1 differ, for ttmem's pytest plugin: each has the same peak alone, after the
others and before them, though the programs of all stay in the program cache."""

import pytest
import ttnn
from device import close_device, open_device

TILES, DRAM, L1 = ttnn.TILE_LAYOUT, ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG


@pytest.fixture(scope="module")
def device():
    device = open_device()
    yield device
    close_device(device)


def empty(device, shape, memory):
    return ttnn.empty(shape, ttnn.bfloat16, TILES, device, memory)


def test_large_program(device):
    ttnn.layer_norm(empty(device, [1, 1, 32, 4096], DRAM))


@pytest.mark.ttmem(limit_peak={"L1": "128 KiB"})
def test_tensors(device):
    kept = [empty(device, [1, 1, 64 * 32, 256], L1) for _ in range(8)]  # 16 KiB in each bank
    del kept


def test_small_program(device):
    kept = [empty(device, [1, 1, 64 * 32, 256], L1) for _ in range(3)]
    ttnn.relu(empty(device, [1, 1, 32, 32], DRAM))
    del kept
