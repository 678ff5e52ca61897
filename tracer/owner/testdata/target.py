"""Makes the objects that are searched.

By default they are instances of a class of Python. With the arguments `manifold3d FOLDER…` they are
instances of a class that nanobind made, and with `ttnn FOLDER` tensors on a device; FOLDER is that of
e2e/programs.
"""
import sys

labels = {}  # by address


class Target:
    __slots__ = ("slot", "__weakref__")  # the slot lets the collector know it


def use(which="", *folders):
    """Chooses what targets are, by arguments of the program."""
    global made
    sys.path[:0] = folders
    if which == "manifold3d":
        import manifold3d

        class Tensor(manifold3d.CrossSection):
            __slots__ = ("slot", "__weakref__")  # the slot lets the collector know it

        made = Tensor
    elif which == "ttnn":
        import ttnn
        from device import open_device

        arguments = [32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, open_device(), ttnn.DRAM_MEMORY_CONFIG
        made = lambda: ttnn.empty(*arguments)  # noqa: E731


def target(label):
    one = made()
    labels[id(one)] = label
    return one


made = Target
