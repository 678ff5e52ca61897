"""A server of asyncio tasks that keeps the answer of each task."""

import asyncio

import ttnn
from device import close_device, idle, open_device

TILE, BF16, DRAM = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG


class Server:
    def __init__(self, device):
        self.device, self.answers = device, []
        self.weight = ttnn.empty([256, 256], BF16, TILE, device, DRAM)

    async def infer(self):
        x = ttnn.empty([32, 256], BF16, TILE, self.device, DRAM)
        await asyncio.sleep(0.01)
        return ttnn.gelu(ttnn.matmul(x, self.weight))  # line: infer

    async def client(self, requests):
        for _ in range(requests):
            self.answers.append(await self.infer())


async def main(server):
    await asyncio.gather(*(server.client(30) for _ in range(3)))


device = open_device()
server = Server(device)
asyncio.run(main(server))
idle()
close_device(device)
