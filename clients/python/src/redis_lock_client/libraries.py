"""The errors and locks of redis-py and valkey-py, whichever are installed: ours are also theirs."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

# By its own name: our tests put one in the place of the other.
INSTALLED = [name for name in ("redis", "valkey") if (spec := find_spec(name)) and spec.name == name]


# Return the classes of one name in all the libraries that are installed.
def theirs(module: str, name: str) -> tuple[Any, ...]:
    return tuple(getattr(import_module(f"{library}.{module}"), name) for library in INSTALLED)
