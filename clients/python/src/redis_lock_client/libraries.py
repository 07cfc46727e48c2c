"""The errors and locks of redis-py and valkey-py, whichever are installed: ours are also theirs."""

from importlib import import_module
from typing import Any


# One that is there and does not work must not stop who uses the other.
def _works(name: str) -> bool:
    try:
        # By its own name: our tests put one in the place of the other.
        return import_module(name).__name__ == name
    except ImportError:
        return False


INSTALLED = [name for name in ("redis", "valkey") if _works(name)]


# Return the classes of one name in all the libraries that are installed.
def theirs(module: str, name: str) -> tuple[Any, ...]:
    return tuple(getattr(import_module(f"{library}.{module}"), name) for library in INSTALLED)
