"""A training loop that keeps the loss of each step with all that belongs to it."""

import time

import ttnn
from device import close_device, idle, open_device

TILE, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG


class Trainer:
    def __init__(self, device):
        self.device = device
        self.weights = [ttnn.empty([512, 512], BF16, TILE, device, DRAM) for _ in range(4)]
        self.losses = []

    def forward(self, x):
        for w in self.weights:
            x = ttnn.matmul(x, w)
        return x

    def step(self, batch):
        y = self.forward(batch)
        loss = ttnn.subtract(y, batch)  # line: loss
        self.losses.append(loss)
        self.weights = [ttnn.multiply(w, 0.99) for w in self.weights]


device = open_device()
trainer = Trainer(device)
for _ in range(60):
    trainer.step(ttnn.empty([128, 512], BF16, TILE, device, DRAM))
    time.sleep(0.02)
idle()
close_device(device)
