"""Locks on a server without the module: SET NX PX, and scripts that act only if the token is still the caller's."""

import random
from threading import Lock as Mutex
from typing import Any
from weakref import WeakKeyDictionary

from . import _protocol as protocol

# A key of another type is somebody else's.
_IF_OURS = "if redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1] then return "

SCRIPTS = {
    "LOCK.RELEASE": _IF_OURS + "redis.call('del', KEYS[1]) end return 0",
    "LOCK.RENEW": _IF_OURS + "redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    # The ttl that is left to the token.
    "LOCK.INFO": _IF_OURS + "redis.call('pttl', KEYS[1]) end return false",
}

# What a lock without a fence has for one.
NO_FENCE = 0

LOST = (
    "The server has no module redis-lock: the locks of this client fall back to SET NX PX. What is lost: the fair "
    "queue, fences, readers and writers, semaphores, multi-locks, guarded commands, at_least and linger. An eviction "
    "or a failover can cut a hold short."
)


class Choices:
    """Remembers for each client whether its locks fall back. The choice is made once."""

    def __init__(self) -> None:
        """None is made."""
        self._mutex = Mutex()
        self._of: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def of(self, client: Any) -> bool | None:
        """Return whether the client's locks fall back, None when this is not known yet."""
        return self._of.get(client)

    def make(self, client: Any, falls_back: bool) -> bool:
        """Make the choice, unless another thread or task has. Return what is chosen, and warn once of what is lost."""
        with self._mutex:
            is_new = client not in self._of
            chosen = self._of.setdefault(client, falls_back)
        if is_new and chosen:
            protocol.logger.warning(LOST)
        return chosen


CHOICES = Choices()


def script(command: str, name: Any, *args: Any) -> tuple[Any, ...]:
    """Return the command that does in the fallback what a command of the module does."""
    return ("EVAL", SCRIPTS[command], 1, name, *args)


def pause(sleep: float) -> float:
    """Return for how long to wait until the lock is asked for again: not all waiters at the same moment."""
    return random.uniform(0.5, 1) * sleep
