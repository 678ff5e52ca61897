"""A server that answers requests. It keeps what it logs of each, and the session of every tenth."""

import time

import ttnn
from device import close_device, idle, open_device

TILE, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG


class Server:
    def __init__(self, device):
        self.device = device
        self.weights = [ttnn.empty([256, 256], BF16, TILE, device, DRAM) for _ in range(4)]
        self.history, self.sessions = [], {}

    def run(self, x):
        for w in self.weights:
            x = ttnn.matmul(x, w)
        return x

    def answer(self, number):
        x = ttnn.empty([32, 256], BF16, TILE, self.device, DRAM)
        result = self.run(x)
        self.history.append(ttnn.log(result))  # line: history
        if number % 10 == 0:
            self.sessions[number] = ttnn.exp(result)  # line: sessions
        return result


device = open_device()
server = Server(device)
for number in range(300):
    server.answer(number)
    time.sleep(0.005)
idle()
close_device(device)
