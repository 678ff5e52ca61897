"""Tests of a model that share a cache, which no test empties."""

import time

import pytest
import ttnn
from device import close_device, idle, open_device

CACHE = {}


@pytest.fixture(scope="session")
def device():
    device = open_device()
    yield device
    idle()
    close_device(device)


def masked(device, size):
    CACHE[size] = ttnn.empty([size, size], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)  # line: mask
    return CACHE[size]


@pytest.mark.parametrize("size", range(256, 256 + 32 * 20, 32))
def test_mask(device, size):
    assert ttnn.relu(masked(device, size)).shape[-1] == size
    time.sleep(0.05)
