"""mark() of ttmem's Python package in this tree, for programs that name their moments."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "ttmem"))

from ttmem import mark  # noqa: E402, F401
