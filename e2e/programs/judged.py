"""Programs, each on a device of its own, twice: with the peak in the first iteration, and in the last one. Lines with GOOD
allocate what is live at a peak and may be needed after it, lines with BAD what is not used any more. Arguments select
programs."""

import sys

import numpy
import ttnn
from device import close_device, open_device
from marks import mark

TILE, DRAM, L1 = ttnn.TILE_LAYOUT, ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
ROW = [1, 1, 256, 256]
programs = []


def program(function):
    programs.append(function)
    return function


def peak():
    """Allocates more than all else and, if the last peak is to be the highest, more than before."""
    global tiles
    ttnn.relu(ttnn.empty([1, 1, 32 * tiles, 2048], ttnn.bfloat16, TILE, device, DRAM))
    tiles += growth


def work(x, runs=10):
    """Runs programs, each on the result of the one before."""
    for _ in range(runs):
        x = ttnn.gelu(x)
    return x


def new(shape=ROW, memory_config=DRAM):
    """Arguments of ttnn.empty: a function that calls it would be the line that allocates."""
    return shape, ttnn.bfloat16, TILE, device, memory_config


def host(value=0.0, edge=32):
    return ttnn.Tensor([value] * (edge * edge), [1, 1, edge, edge], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT).to(TILE)


@program
def weights_of_each_iteration():
    weights = [ttnn.empty(*new()) for _ in range(6)]  # GOOD
    x = ttnn.empty(*new())  # GOOD: each iteration begins with it
    for _ in range(3):
        y = x
        for weight in weights:
            y = ttnn.matmul(y, weight)
        peak()


@program
def weights_of_one_pass():
    global parameters
    parameters = {name: ttnn.empty(*new()) for name in ("query", "key", "value", "out")}  # GOOD
    image = ttnn.empty(*new())  # BAD
    x = ttnn.relu(image)
    for weight in parameters.values():
        x = ttnn.matmul(x, weight)
    x = work(x)
    peak()
    work(x)


@program
def weights_of_a_constructor():
    class Model:
        def __init__(self):
            self.weights = [ttnn.empty(*new()) for _ in range(4)]  # GOOD

        def forward(self, x):
            for weight in self.weights:
                x = ttnn.matmul(x, weight)
            return x

    model = Model()
    x = model.forward(work(ttnn.empty(*new())))
    peak()
    work(x)


@program
def key_value_cache():
    caches = [ttnn.empty(*new()) for _ in range(2)]  # GOOD
    token = ttnn.empty(*new())  # GOOD
    for _ in range(4):
        x = ttnn.relu(token)
        for cache in caches:
            ttnn.add(cache, x, output_tensor=cache)
            x = ttnn.matmul(x, cache)  # BAD
        work(x)
        peak()


@program
def pages_of_a_cache():
    global pages
    pages = [ttnn.empty(*new()) for _ in range(12)]  # GOOD: most of them are never needed
    x = ttnn.empty(*new())  # GOOD
    for page in pages[:3]:
        ttnn.add(page, x, output_tensor=page)
        work(x)
        peak()


@program
def results_that_are_read_later():
    results = []
    x = ttnn.empty(*new())  # GOOD
    for _ in range(4):
        results.append(work(ttnn.relu(x)))
        last = ttnn.add(results[-1], x)  # GOOD
    work(x)
    peak()
    for result in [*results, last]:
        ttnn.from_device(result)
    work(x)


@program
def residual():
    x = ttnn.empty(*new())  # GOOD
    y = work(ttnn.relu(x))
    peak()
    work(ttnn.add(x, y))


@program
def skips_of_a_unet():
    x, skips = ttnn.relu(ttnn.empty(*new())), []
    for _ in range(4):
        x = work(x, 4)
        skips.append(ttnn.relu(x))  # GOOD
    peak()
    for skip in reversed(skips):
        x = ttnn.add(work(x, 2), skip)


@program
def optimizer_state():
    weight, momentum, variance = (ttnn.empty(*new()) for _ in range(3))  # GOOD
    batch = ttnn.empty(*new())  # GOOD
    for _ in range(4):
        gradient = work(ttnn.matmul(batch, weight))
        peak()
        ttnn.add(momentum, gradient, output_tensor=momentum)
        ttnn.add(variance, gradient, output_tensor=variance)
        ttnn.subtract(weight, ttnn.multiply(momentum, variance), output_tensor=weight)
    work(batch)


@program
def double_buffering():
    inputs = [ttnn.to_device(host(), device, memory_config=DRAM) for _ in range(2)]  # GOOD
    for i in range(6):
        work(inputs[i % 2])
        ttnn.copy_host_to_device_tensor(host(), inputs[1 - i % 2])
        peak()


@program
def constants_made_once():
    cos, sin = ttnn.full([1, 1, 256, 256], 0.5, device=device, layout=TILE), ttnn.ones([1, 1, 256, 256], device=device, layout=TILE)  # GOOD
    x = ttnn.empty(*new())  # GOOD
    for _ in range(3):
        y = ttnn.add(ttnn.multiply(x, cos), ttnn.multiply(x, sin))  # BAD
        work(y)
        peak()


@program
def lookup_table():
    table = ttnn.empty([512, 256], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, DRAM)  # GOOD
    tokens = ttnn.zeros([1, 256], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, DRAM)  # GOOD
    for _ in range(3):
        work(ttnn.embedding(tokens, table, layout=TILE))
        peak()


@program
def mask_of_all_layers():
    mask = ttnn.tril(ttnn.empty(*new()))  # GOOD
    x = ttnn.relu(ttnn.empty(*new()))
    for layer in range(4):
        x = ttnn.softmax(ttnn.add(x, mask), dim=-1)  # GOOD
        work(x)
        peak()
    ttnn.from_device(x)


@program
def running_statistics():
    mean, variance = (ttnn.empty(*new()) for _ in range(2))  # GOOD
    x = ttnn.empty(*new())  # GOOD
    for _ in range(4):
        ttnn.add(mean, x, output_tensor=mean)
        ttnn.multiply(variance, x, output_tensor=variance)
        work(x, 3)
    peak()
    for _ in range(2):
        work(x)
    ttnn.subtract(x, ttnn.multiply(mean, variance))


@program
def accumulated_gradients():
    sums = [ttnn.zeros([1, 1, 256, 256], device=device, layout=TILE) for _ in range(3)]  # GOOD
    x = ttnn.empty(*new())  # GOOD
    for _ in range(4):
        for one in sums:
            ttnn.add(one, work(x, 3), output_tensor=one)
        peak()
    for one in sums:
        ttnn.from_device(one)
    work(x)


@program
def state_of_the_next_iteration():
    state, x = ttnn.empty(*new()), ttnn.empty(*new())  # GOOD
    for _ in range(5):
        y = ttnn.add(state, x)
        work(y)
        peak()
        state = ttnn.add(y, state)


@program
def encoder_for_all_tokens():
    encoded = work(ttnn.empty(*new()))
    encoded = ttnn.relu(encoded)  # GOOD
    x = ttnn.empty(*new())
    for _ in range(4):
        x = ttnn.matmul(work(x), encoded)
        peak()


@program
def next_batch():
    batch = ttnn.to_device(host(), device, memory_config=DRAM)  # GOOD
    for _ in range(4):
        following = ttnn.to_device(host(), device, memory_config=DRAM)  # GOOD
        work(batch)
        peak()
        work(batch, 2)
        batch = following


@program
def ensemble():
    x = ttnn.empty(*new())  # GOOD
    members = []
    for _ in range(4):
        members.append(ttnn.relu(work(x)))  # GOOD
        peak()
    total = members[0]
    for member in members[1:]:
        total = ttnn.add(total, member)
    work(x)


@program
def adapters():
    weight = ttnn.empty(*new())  # GOOD
    special = ttnn.empty(*new())  # GOOD: a few requests need it
    for i in range(12):
        x = ttnn.matmul(weight, weight)  # BAD
        if i in (0, 5, 10):
            x = ttnn.matmul(x, special)  # BAD
        work(x, 4)
        peak()


@program
def losses():
    x, losses = ttnn.empty(*new()), []  # GOOD
    for _ in range(12):
        losses.append(ttnn.sum(ttnn.add(x, x), dim=-1, keepdim=True))  # GOOD
    peak()
    work(x)
    for loss in losses:
        ttnn.from_device(loss)


@program
def views_that_are_read():
    x, views = ttnn.empty(*new()), []  # GOOD
    for _ in range(6):
        views.append(ttnn.sum(x))  # GOOD
        views.append(ttnn.reshape(ttnn.relu(x), [256, 256]))  # GOOD
    work(x)
    peak()
    work(x)
    for view in views:
        ttnn.from_device(view)


@program
def average_of_weights():
    weight, average = ttnn.empty(*new()), ttnn.empty(*new())  # GOOD
    for i in range(12):
        work(ttnn.matmul(weight, weight), 3)
        if i % 4 == 0:
            ttnn.add(average, weight, output_tensor=average)
        peak()


@program
def draft_and_target():
    draft, target = ttnn.empty(*new()), ttnn.empty(*new())  # GOOD
    x = ttnn.empty(*new())
    for _ in range(3):
        for _ in range(5):
            x = ttnn.matmul(x, draft)
            ttnn.gelu(x)
        x = ttnn.matmul(x, target)
        peak()


@program
def allocated_output():
    out = ttnn.empty(*new())  # GOOD
    x = ttnn.empty(*new())  # GOOD
    ttnn.add(x, x, output_tensor=out)
    work(x)
    peak()
    ttnn.from_device(out)
    work(x)


@program
def history():
    frames = []
    x = ttnn.empty(*new())  # GOOD
    for _ in range(8):
        frames.append(ttnn.relu(x))  # GOOD
        if len(frames) == 3:
            ttnn.add(ttnn.add(frames[0], frames[1]), frames[2])
            frames.pop(0)
        work(x, 2)
        peak()
    ttnn.add(frames[0], frames[1])


@program
def weights_of_a_test():
    weights = [ttnn.to_device(host(edge=256), device, memory_config=DRAM) for _ in range(4)]  # GOOD
    x = ttnn.to_device(host(edge=256), device, memory_config=DRAM)
    for weight in weights:
        x = ttnn.matmul(work(x, 3), weight)
    peak()
    ttnn.from_device(work(x))


@program
def weights_that_the_device_lays_out():
    weights = [ttnn.Tensor(tensor=numpy.zeros(ROW, numpy.float32), data_type=ttnn.bfloat16, device=device, layout=TILE) for _ in range(4)]  # GOOD
    more = [ttnn.to_layout(ttnn.to_device(host(edge=256).to(ttnn.ROW_MAJOR_LAYOUT), device), TILE) for _ in range(2)]  # GOOD
    x = ttnn.empty(*new())
    for weight in [*weights, *more]:
        x = ttnn.matmul(work(x, 3), weight)
    peak()
    ttnn.from_device(work(x))


@program
def inputs_of_a_loop():
    weight = ttnn.empty(*new())  # GOOD
    for _ in range(3):
        image = ttnn.to_device(host(edge=256), device, memory_config=DRAM)  # BAD
        x = ttnn.matmul(image, weight)
        x = work(x)
        peak()
        work(ttnn.matmul(x, weight))


@program
def cache_of_prompts():
    weight, cache = ttnn.empty(*new()), {}  # GOOD
    for prompt in (1, 2, 1, 3, 1, 2, 4, 3, 1, 5, 1):
        if prompt not in cache:
            cache[prompt] = ttnn.matmul(weight, weight)  # GOOD
            if len(cache) > 3:
                del cache[next(iter(cache))]
        work(cache[prompt], 4)
        peak()


@program
def cache_of_each_request():
    weight = ttnn.empty(*new())  # GOOD
    for _ in range(3):
        keys = ttnn.zeros([1, 1, 256, 256], device=device, layout=TILE)  # GOOD
        for _ in range(4):
            ttnn.add(keys, work(weight, 3), output_tensor=keys)
            peak()


@program
def made_too_early():
    x = ttnn.empty(*new())  # GOOD
    y = ttnn.empty(*new())  # BAD
    work(x, 12)
    peak()
    work(ttnn.add(x, y))


@program
def freed_at_once():
    x = ttnn.relu(ttnn.empty(*new()))
    for _ in range(12):
        y = ttnn.gelu(x)
        ttnn.deallocate(x)
        x = y
    peak()
    ttnn.from_device(x)


@program
def activations_of_training():
    weight = ttnn.empty(*new())  # GOOD
    batch = ttnn.empty(*new())  # GOOD
    for _ in range(2):
        x, activations = batch, []
        for _ in range(4):
            x = ttnn.gelu(ttnn.matmul(x, weight))  # BAD
            activations.append(x)
        gradient = ttnn.multiply(batch, batch)
        for activation in reversed(activations):
            gradient = ttnn.matmul(work(gradient, 2), activation)
        peak()
        ttnn.add(weight, gradient, output_tensor=weight)
        work(batch)


@program
def output_of_the_last_iteration():
    x = ttnn.empty(*new())  # GOOD
    for _ in range(3):
        y = work(ttnn.relu(x))
        peak()
        out = ttnn.softmax(y, dim=-1)  # BAD
        ttnn.from_device(out)


@program
def for_debugging():
    x, seen = ttnn.empty(*new()), []  # GOOD
    y = ttnn.relu(x)
    for _ in range(4):
        y = ttnn.gelu(y)
        seen.append(ttnn.clone(y))  # BAD
        y = work(y, 3)
    peak()
    del seen
    work(x)


@program
def copy_beside_its_source():
    x = ttnn.relu(ttnn.empty(*new()))  # BAD
    y = ttnn.to_memory_config(x, L1)
    z = work(y)
    peak()
    work(y)


selected = sys.argv[1:]
for one in programs:
    for when, growth in ("first", 0), ("last", 8):
        if not selected or one.__name__ in selected:
            mark(f"{one.__name__}, {when}")
            tiles = 64
            device = open_device()
            one()
            close_device(device)
