"""Adds the program ttmem to a wheel."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The program is static: it runs on any Linux that pip takes this tag for.
TAG = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"


class Program(BuildHookInterface):
    """`make wheel` names the folder into which `make install` has put the program, its manual pages, completions and
    documentation. Without it, as by `pip install ./python/ttmem`, the wheel has the Python package only."""

    def initialize(self, version, build_data):
        tree = os.environ.get("TTMEM_INSTALLED")
        if not tree or self.target_name != "wheel":
            return
        build_data["pure_python"] = False
        build_data["tag"] = TAG
        build_data["shared_scripts"][os.path.join(tree, "bin", "ttmem")] = "ttmem"
        build_data["shared_data"][os.path.join(tree, "share")] = "share"
