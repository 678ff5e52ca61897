"""A small convolutional network, whose first layer has the largest weight."""

import time

import ttnn
from device import close_device, idle, open_device

TILE, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG


class Layer:
    def __init__(self, device, inputs, outputs):
        self.weight = ttnn.empty([inputs, outputs], BF16, TILE, device, DRAM)  # line: weight
        self.bias = ttnn.empty([1, outputs], BF16, TILE, device, DRAM)

    def forward(self, x):
        return ttnn.relu(ttnn.add(ttnn.matmul(x, self.weight), self.bias))


class Network:
    def __init__(self, device):
        self.stem = Layer(device, 2048, 1024)
        self.stages = [Layer(device, 1024, 1024), Layer(device, 1024, 64)]

    def forward(self, x):
        x = self.stem.forward(x)
        for stage in self.stages:
            x = stage.forward(x)
        return ttnn.softmax(x, dim=-1)


device = open_device()
network = Network(device)
for _ in range(8):
    network.forward(ttnn.empty([64, 2048], BF16, TILE, device, DRAM))
    time.sleep(0.1)
idle()
close_device(device)
