"""The errors and locks of redis-py and valkey-py, whichever are installed: ours are also theirs."""

from importlib import import_module
from types import ModuleType
from typing import Any


def _imported(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


# By its own name: our tests put one in the place of the other.
INSTALLED = {name: module for name in ("redis", "valkey") if (module := _imported(name)) and module.__name__ == name}


# Return the classes of one name in all the libraries that are installed.
def theirs(module: str, name: str) -> tuple[Any, ...]:
    return tuple(getattr(import_module(f"{library}.{module}"), name) for library in INSTALLED)
