"""Tests that leave device memory, or do not, for ttmem's pytest plugin."""

import pytest
import ttnn
from device import close_device, open_device

KEPT = []


@pytest.fixture(scope="module")
def device():
    device = open_device()
    weights = tensor(device)  # the module's: no test leaves it
    yield device
    del weights
    close_device(device)


def tensor(device, memory=ttnn.DRAM_MEMORY_CONFIG):
    """512 KiB of bfloat16."""
    return ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


@pytest.fixture
def own_device():
    device = open_device()
    yield device
    close_device(device)


@pytest.mark.ttmem(limit_leaks="64 KiB")
def test_hidden(own_device):
    KEPT.append(tensor(own_device))  # until its device is closed, which is no free


@pytest.mark.ttmem(limit_leaks="64 KiB")
def test_freed(own_device):
    tensor(own_device)


@pytest.mark.ttmem(limit_leaks=0, limit_peak={"DRAM": "16 MiB"})
def test_clean(device):
    ttnn.add(tensor(device), tensor(device))


@pytest.mark.ttmem(limit_leaks="64 KiB")
def test_leaks(device):
    for _ in range(3):
        KEPT.append(tensor(device))


@pytest.mark.ttmem(limit_peak={"L1": "4 KiB"})
def test_peak(device):
    tensor(device, ttnn.L1_MEMORY_CONFIG)


@pytest.mark.ttmem(limit_leak=1)
def test_misspelt(device):
    pass


def test_unmarked(device):
    KEPT.append(tensor(device))


@pytest.mark.ttmem(limit_leaks=None, limit_peak={"L1": None})
def test_spared(device):
    KEPT.append(tensor(device, ttnn.L1_MEMORY_CONFIG))


def test_last(device):
    KEPT.clear()


@pytest.mark.ttmem(limit_leaks="64 KiB")
def test_fails(device):
    held = tensor(device)
    assert held is None
