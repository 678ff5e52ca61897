"""A server that allocates a cache of keys for each user, until there is no room for another one."""

import ttnn
from device import idle, open_device

device = open_device()


class Service:
    def __init__(self):
        self.weights = [self.tensor(4096) for _ in range(8)]
        self.keys = {}

    def tensor(self, rows):
        return ttnn.empty([rows, 32768], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)

    def login(self, user):
        self.keys[user] = self.tensor(16384)  # line: login


service = Service()
for user in range(8):
    service.login(user)
idle()
for user in range(8, 20):
    service.login(user)
