"""Holds tensors in objects of the libraries of model servers.

Its arguments are folders of packages. It writes a line of JSON with the address of each tensor by its
path, where * stands for what differs between releases, and waits for a line of standard input.
"""

import functools
import importlib
import json
import sys

import numpy
import ttnn
from device import open_device

sys.path += sys.argv[1:]  # after ttnn's own numpy
modules = "pandas scipy.linalg scipy.sparse scipy.optimize sklearn.ensemble transformers pydantic fastapi".split()
if any("torch" in folder for folder in sys.argv[1:]):
    modules += ["torch", "transformers.modeling_utils"]
for name in modules:
    importlib.import_module(name)

import fastapi  # noqa: E402
import pandas  # noqa: E402
import pydantic  # noqa: E402
import sklearn.ensemble  # noqa: E402
import transformers  # noqa: E402

device = open_device()
held = {}


def tensor(path):
    one = ttnn.empty([1, 1, 32, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    held[path] = one.buffer_address()
    return one


class Request(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    tensor: object


def answers():
    first, second = tensor("answer.__closure__[0].cell_contents"), tensor("answer.__closure__[1].cell_contents")
    return lambda: (first, second)


@functools.lru_cache(maxsize=64)
def bounded(k):
    return tensor(f"bounded.cache[{k}]")


@functools.cache
def unbounded(k):
    return tensor(f"unbounded.cache[{k}]")


weights = [tensor(f"weights[{i}]") for i in range(4)]
objects = numpy.array([None, tensor("objects[1]")], dtype=object)
table = numpy.empty((2, 2), dtype=object)
table[1, 0] = tensor("table.flat[2]")
series = pandas.Series([0, tensor("series*")], dtype=object)
frame = pandas.DataFrame({"a": [1, 2], "b": [tensor("frame*"), None]})
request = Request(tensor=tensor("request.tensor"))
app = fastapi.FastAPI()
app.state.model = tensor("app.state._state['model']")
forest = sklearn.ensemble.RandomForestClassifier()
forest.extra = tensor("forest.extra")
config = transformers.PretrainedConfig()
config.extra = tensor("config.extra")
answer = answers()
for k in range(20):
    bounded(k)
for k in range(3):
    unbounded(k)

print(json.dumps(held), flush=True)
sys.stdin.readline()
