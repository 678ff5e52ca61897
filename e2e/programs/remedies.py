"""Programs with a remedy: remedies.py KIND [changed]. With "changed" a program does what ttmem says. It prints PEAK and what
is allocated at most of each bank between two operations, AT and where the lowest tensor of L1 is, or WORKED."""

import sys

import ttnn
from device import attempt, close_device, memory, open_device

TILE, DRAM, L1 = ttnn.TILE_LAYOUT, ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
change = sys.argv[2] if len(sys.argv) > 2 else ""
most = 0


def tensor(rows, columns=256, memory_config=DRAM):
    return ttnn.empty([1, 1, rows, columns], ttnn.bfloat16, TILE, device, memory_config)


def freed(*tensors):
    """Frees tensors in the changed program."""
    for one in tensors if change else ():
        ttnn.deallocate(one)


def counted(result):
    global most
    dram = memory(device)["DRAM"]
    most = max(most, dram["allocated_per_bank"] * dram["banks"])
    return result


def late():
    """A tensor that only the first operation uses is held through the peak."""
    residual = tensor(2048, 2048)  # HELD
    x = ttnn.add(residual, residual)  # LAST
    freed(residual)
    for _ in range(4):
        x = ttnn.relu(x)
    return [counted(ttnn.add(x, x)) for _ in range(4)]


class Conv:
    def __init__(self, channels, out):
        self.channels, self.out = channels, out
        self.weight = ttnn.Tensor([0.0] * (out * channels * 9), [out, channels, 3, 3], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)

    def forward(self, x):
        y, (self.weight, _) = ttnn.conv2d(  # CONVOLUTION
            input_tensor=x, weight_tensor=self.weight, in_channels=self.channels, out_channels=self.out, device=device,
            kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), batch_size=1, input_height=64, input_width=64,
            return_weights_and_bias=True,
        )  # fmt: skip
        return counted(y)


class Block:
    def __init__(self, channels):
        self.first, self.second = Conv(channels, channels), Conv(channels, channels)

    def forward(self, x):
        y = ttnn.relu(self.first.forward(x))
        y = self.second.forward(y)
        return counted(ttnn.add(y, x))


def cnn():
    """Residual blocks. The image, which only the stem uses, is a variable."""
    stem, blocks, head = Conv(32, 32), [Block(32) for _ in range(2)], Conv(32, 96)
    for _ in range(2):
        image = tensor(64 * 64, 32)  # IMAGE
        x = stem.forward(image)
        freed(image)
        for block in blocks:
            x = block.forward(x)
        result = head.forward(x)
        ttnn.from_device(result)


class Linear:
    """A layer that is trained with momentum."""

    def __init__(self):
        self.weight, self.momentum = tensor(256), tensor(256)

    def forward(self, x):
        return counted(ttnn.matmul(x, self.weight))

    def backward(self, x, gradient):
        """Returns the gradients of the input and of the weight."""
        above = counted(ttnn.matmul(gradient, self.weight, transpose_b=True))
        return above, counted(ttnn.matmul(x, gradient, transpose_a=True))  # BACKWARD

    def step(self, gradient):
        ttnn.add(self.momentum, gradient, output_tensor=self.momentum)
        scaled = counted(ttnn.multiply(self.momentum, 0.1))
        ttnn.subtract(self.weight, scaled, output_tensor=self.weight)


def train(layers, batch):
    """Holds all activations until the step ends, though the backward pass uses each once."""
    x, inputs = batch, []
    for layer in layers:
        inputs.append(x)
        x = ttnn.gelu(layer.forward(x))  # ACTIVATION
    gradient, gradients = ttnn.multiply(x, x), []
    for layer, x in zip(reversed(layers), reversed(inputs)):
        gradient, one = layer.backward(x, gradient)
        if x is not batch:
            freed(x)
        gradients.append(one)
    for layer, one in zip(reversed(layers), gradients):
        layer.step(one)


def training():
    layers, batch = [Linear() for _ in range(4)], tensor(256)
    for _ in range(3):
        train(layers, batch)


def circular():
    """Biases in L1, which are used once, are in the way of the circular buffers of a wide softmax."""
    biases = [tensor(512, 1024, L1) for _ in range(72)]  # BIASES
    x = tensor(512, 1024)
    for bias in biases:
        x = ttnn.add(x, bias)
    freed(*biases)
    table = tensor(512, 1024, L1)
    attempt("softmax", lambda: ttnn.softmax(tensor(32, 4096), dim=-1))  # SOFTMAX
    print("AT", table.buffer_address(), flush=True)


def pools():
    """The program cache has tables of each shape in L1_SMALL."""
    for edge in range(8, 24, 2):
        x = ttnn.empty([1, 1, edge * edge, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, L1)
        ttnn.max_pool2d(
            input_tensor=x, batch_size=1, input_h=edge, input_w=edge, channels=32,
            kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1],
        )  # fmt: skip
    print("WORKED", flush=True)


device = open_device(l1_small_size=int(change) if change.isdecimal() else 32768)
{"late": late, "cnn": cnn, "training": training, "circular": circular, "pools": pools}[sys.argv[1]]()
print("PEAK", most, flush=True)
close_device(device)
