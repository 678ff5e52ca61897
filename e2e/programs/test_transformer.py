"""Inference of the transformer, of which no test may leave memory, for ttmem's pytest plugin."""

import pytest
from device import close_device, open_device
from small_transformer import Leaking, Transformer


@pytest.fixture(scope="module")
def device():
    device = open_device()
    yield device
    close_device(device)


@pytest.fixture(scope="module", params=[Transformer, Leaking])
def model(request, device):
    model = request.param(device)
    model.infer(1)  # programs are cached
    return model


@pytest.mark.ttmem(limit_leaks=0)
def test_inference(model):
    model.infer(8)
