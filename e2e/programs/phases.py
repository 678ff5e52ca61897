"""A training loop with gradient accumulation. Prints, for each function that it calls, the highest use of DRAM by the
library's own view, and what each call of it left."""

import collections

import ttnn

STEPS, MICRO, LAYERS, SIZE = 2, 3, 3, 512

device = ttnn.open_device(device_id=0)
peaks, left = collections.Counter(), {}


def used():
    view = ttnn._ttnn.device.GetMemoryView(device, ttnn.BufferType.DRAM)
    return view.total_bytes_allocated_per_bank * view.num_banks


def saw(phase):
    peaks[phase] = max(peaks[phase], used())


def empty():
    return ttnn.empty([SIZE, SIZE], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def load():
    weights = []
    for _ in range(LAYERS):
        weights.append(empty())
        saw("load")
    return weights


def forward(weights):
    x = empty()
    saw("forward")
    activations = []
    for w in weights:
        x = ttnn.matmul(x, w)
        saw("forward")
        activations.append(x)
    return activations


def backward(activations, gradients):
    for i, a in enumerate(reversed(activations)):
        g = ttnn.matmul(a, a)
        saw("backward")
        if gradients[i] is not None:
            total = ttnn.add(gradients[i], g)
            saw("backward")  # with both terms
            g = total
            del total
        gradients[i] = g


def optimize(weights, gradients):
    updated = []
    for w, g in zip(weights, gradients):
        updated.append(ttnn.subtract(w, g))
        saw("optimize")
    return updated


def main():
    weights = load()
    for _ in range(STEPS):
        gradients = [None] * LAYERS
        for _ in range(MICRO):
            activations = forward(weights)
            backward(activations, gradients)
            del activations
        weights = optimize(weights, gradients)


main()
for phase, bytes in peaks.items():
    print("PEAK", phase, bytes, flush=True)
ttnn.close_device(device)
