"""What a server may answer, and what follows from it. Nothing here does I/O."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from .libraries import theirs


class LockError(*theirs("exceptions", "LockError")):  # type: ignore[misc]
    """A lock could not be acquired, released or renewed. It is also the library's `LockError`, and a ValueError."""

    def __str__(self) -> str:
        """Return the text alone, whatever the library makes of both."""
        return self.message or ""


class LockNotOwnedError(LockError, *theirs("exceptions", "LockNotOwnedError")):  # type: ignore[misc]
    """The hold is lost."""


class LockCancelledError(LockError):
    """An operator has ended the wait by LOCK.CANCEL."""


class InProgressError(LockError):
    """A value is being made elsewhere, and did not come in time."""


class FingerprintError(ValueError):
    """A key of idempotency was used before, and with other arguments."""


class UnsupportedError(*theirs("exceptions", "ResponseError")):  # type: ignore[misc]
    """The server does not know what was asked of it. It is also the library's `ResponseError`."""


# The name in the style of redis-py.
NotSupportedError = UnsupportedError


class ModuleMissingError(UnsupportedError):
    """The server has not loaded the module redis-lock."""


# What an error word means.
class Kind(Enum):
    # A wait goes on until its own time is over, and a release or a renewal until the lease is over.
    TEMPORARY = "temporary"
    # The same, at the node or the primary that is responsible now.
    ELSEWHERE = "elsewhere"
    # The caller gets the error at once.
    FINAL = "final"


# As in clients/vectors/errors.txt. Every other word is final.
WORDS = {
    **dict.fromkeys(
        ["LOADING", "BUSY", "MISCONF", "NOREPLICAS", "TRYAGAIN", "OOM", "CLUSTERDOWN", "UNBLOCKED"], Kind.TEMPORARY
    ),
    **dict.fromkeys(["MASTERDOWN", "READONLY", "MOVED", "ASK"], Kind.ELSEWHERE),
    **dict.fromkeys(["NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "CROSSSLOT", "ERR"], Kind.FINAL),
}

# The libraries cut some words off, and keep them in the name of a class: ReadOnlyError. These are named otherwise.
_CLASSES = {"BUSYLOADING": "LOADING", "OUTOFMEMORY": "OOM", "NOPERMISSION": "NOPERM", "CLUSTERCROSSSLOT": "CROSSSLOT"}


# Return the word with which the server's error began.
def word_of(error: Exception) -> str:
    names = [cls.__name__.removesuffix("Error").upper() for cls in type(error).__mro__]
    words = (_CLASSES.get(name, name) for name in names)
    first = str(error).split(" ", 1)[0]
    # What a cluster's client says that has followed -TRYAGAIN or -ASK too often.
    first = "TRYAGAIN" if str(error).startswith("TTL exhausted") else first
    return next(filter(WORDS.__contains__, words), first)


# Return what the error means.
def kind_of(error: Exception) -> Kind:
    return WORDS.get(word_of(error), Kind.FINAL)


# Return whether the server, or a proxy before it, seems to lack the command. Each says so in its own words.
def is_unknown_command(error: Exception, command: str) -> bool:
    text = str(error).lower()
    if word_of(error) in WORDS.keys() - {"ERR"} or "wrong number" in text or "unknown option" in text:
        return False
    # That of LOCK.EXEC may be unknown, too.
    named = re.search(r"['`](\S+)['`]", text)
    if named and named[1] != command.lower():
        return False
    lacks = ("unknown", "unsupported", "not available", "not supported", "doesn't exist")
    return command.lower() in text or any(words in text for words in lacks)


# What a token holds, by the server's word.
class Held(NamedTuple):
    fence: int
    mode: str
    # The smallest limit of all the holders, where the holds are counted.
    limit: int
    ttl_ms: int

    # Return the command that converts the hold back to this mode.
    def again(self, name: Any, token: bytes) -> tuple[Any, ...]:
        if self.mode == "counted":
            return ("LOCK.ACQUIRE", name, token, self.ttl_ms, "LIMIT", self.limit)
        return ("RWLOCK.RLOCK" if self.mode == "shared" else "RWLOCK.WLOCK", name, token, self.ttl_ms)


# Of a token that holds something, to a user who may not ask what.
UNKNOWN = Held(0, "", 0, 0)


# What stands for the reply to LOCK.INFO where an old client's string lies under the key.
STRING = {b"mode": b"exclusive"}


# Return the token's hold out of the reply to LOCK.INFO, or None when it holds nothing.
def held(lock: Mapping[bytes, Any], token: bytes) -> Held | None:
    for holder in map(as_map, lock.get(b"holders", ())):
        if holder[b"token"] == token:
            return Held(holder[b"fence"], lock[b"mode"].decode(), lock.get(b"limit", 1), holder[b"ttl"])
    return None


# Return how many permits are free by the reply to LOCK.INFO.
def available(lock: Mapping[bytes, Any], permits: int) -> int:
    if lock.get(b"mode") == b"exclusive":
        return 0
    limit: int = lock.get(b"limit", permits)
    holders: int = lock.get(b"holder-count", 0)
    return max(min(permits, limit) - holders, 0)


# RESP3 has maps, RESP2 has flat arrays.
def as_map(reply: Any) -> Mapping[bytes, Any]:
    return reply if isinstance(reply, Mapping) else dict(zip(reply[::2], reply[1::2], strict=True))
