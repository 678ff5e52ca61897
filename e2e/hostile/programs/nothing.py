"""Does nothing."""

from tools import forever

forever()
