"""Two processes that each work on a part of the data; one keeps a copy of each."""

import multiprocessing
import time

import ttnn
from device import close_device, idle, open_device


class Worker:
    def __init__(self, device, keeps):
        self.device, self.keeps, self.copies = device, keeps, []

    def work(self):
        part = ttnn.empty([256, 256], ttnn.bfloat16, ttnn.TILE_LAYOUT, self.device, ttnn.DRAM_MEMORY_CONFIG)
        copy = ttnn.add(part, 1.0)  # line: copy
        if self.keeps:
            self.copies.append(copy)


def main(keeps):
    device = open_device()
    worker = Worker(device, keeps)
    for _ in range(60):
        worker.work()
        time.sleep(0.02)
    if keeps:
        idle()
    close_device(device)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=main, args=(keeps,)) for keeps in (False, True)]
    for one in both:
        one.start()
    for one in both:
        one.join()
