"""What the sync and the asyncio lock have in common: everything but the waiting for an answer."""

import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from threading import Lock as Mutex
from threading import local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from redis.exceptions import LockError, LockNotOwnedError, RedisError, ResponseError, TryAgainError

logger = logging.getLogger("redis_lock_client")

# The longest hold that the module grants, some 8,900 years: what a lock without timeout gets.
MAX_TTL_MS = 2**48

# The share of the client's socket timeout for which one command waits. The rest is for the way there and back.
SLICE = 0.75

# How long redis-py waits for a reply when nobody says otherwise.
DEFAULT_SOCKET_TIMEOUT = 5.0

# For how many seconds a place in the queue outlives the connection that waited there, and the longest that the module
# takes.
GRACE = 5.0
LONGEST_GRACE = 3600

# The most permits that the module takes.
MOST_PERMITS = 2**31 - 1

# How often in a row an acquire whose connection broke is sent again, after what the client itself retries.
RESENDS = 5
FIRST_PAUSE = 0.05

# How often a lock that an old client holds is asked for: it has no queue to stand in.
OLD_CLIENT_PACE_MS = 50


class Hold(local):
    """What a thread holds. Unlike redis-py's it has its defaults in every thread, not only in the one that made it."""

    token: bytes | None = None
    fence: int | None = None


class NotSupportedError(ResponseError):
    """The server does not know what was asked of it: its module is older than 0.2, or the server older than 7.0."""


class Held(NamedTuple):
    """What a token holds, by the server's word."""

    fence: int
    mode: str
    # The smallest limit of all the holders, where the holds are counted.
    limit: int
    ttl_ms: int

    def again(self, name: Any, token: bytes) -> tuple[Any, ...]:
        """Return the command that asks for a hold of its mode, or converts one to it."""
        if self.mode == "counted":
            return ("LOCK.ACQUIRE", name, token, self.ttl_ms, "LIMIT", self.limit)
        return ("RWLOCK.RLOCK" if self.mode == "shared" else "RWLOCK.WLOCK", name, token, self.ttl_ms)

    def may_wait_for(self, acquire: str) -> bool:
        """Return whether this command may have to wait to convert the hold."""
        return self.mode != "exclusive" and acquire != "RWLOCK.RLOCK"


class Patience:
    """How long an acquire still waits, and in what slices."""

    def __init__(self, seconds: float | None, socket_timeout: float | None) -> None:
        """Wait for `seconds`, or for ever when it is None, by a client that reads for `socket_timeout` seconds."""
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._slice = math.inf if socket_timeout is None else socket_timeout * SLICE
        # Whether a request of this acquire said KEEP: then it may have left a place, which has to be given up.
        self.kept = False

    def left_ms(self) -> float:
        """Return the whole milliseconds that are left, or infinity."""
        left = self._end - time.monotonic()
        return left if left == math.inf else max(int(left * 1000), 0)

    def block(self, grace_ms: int) -> tuple[str | int, ...]:
        """Return the options of the next command that waits: none when nothing is left, because BLOCK 0 has no end."""
        left = self.left_ms()
        if left == 0:
            return ()
        block = min(left, self._slice * 1000)
        return ("BLOCK", 0 if block == math.inf else max(int(block), 1), *self._keep(grace_ms))

    def notify(self, longest_ms: int, channel: bytes, grace_ms: int) -> tuple[str | int | bytes, ...]:
        """Return the options of the next command that waits by a channel: none when nothing is left."""
        left = self.left_ms()
        if left == 0:
            return ()
        return ("NOTIFY", max(int(min(left, longest_ms)), 1), channel, *self._keep(grace_ms))

    def _keep(self, grace_ms: int) -> tuple[str | int, ...]:
        if not grace_ms:
            return ()
        self.kept = True
        return ("KEEP", grace_ms)

    def pause(self, failures: int) -> float | None:
        """Return the seconds until the same token asks again after failures in a row, None when it should not."""
        left = self.left_ms() / 1000
        # Who does not wait sends a second time only, for a lost reply.
        if failures > (RESENDS if left else 1):
            return None
        pause: float = min(FIRST_PAUSE * 2 ** (failures - 1), left)
        return pause

    def pace(self, pttl: int) -> float:
        """Return the seconds until an old client's lock, which lives for `pttl` ms, is asked for again."""
        # PTTL answers -1 for a key without ttl and -2 for one that is gone.
        soonest = OLD_CLIENT_PACE_MS if pttl == -1 else min(max(pttl, 1), OLD_CLIENT_PACE_MS)
        return min(soonest, self.left_ms()) / 1000


class Lacks:
    """Remembers for each client which options of an acquire its server does not know."""

    def __init__(self) -> None:
        """Nothing is known to be missing."""
        self._mutex = Mutex()
        self._of: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def has(self, client: Any, option: str) -> bool:
        """Return whether the server does without this option."""
        return option in self._of.get(client, ())

    def learn(self, client: Any, error: RedisError, options: tuple[Any, ...]) -> bool:
        """Return whether an error says that the server lacks one of these options: then ask again without it."""
        text = str(error)
        if text.startswith("unknown option"):
            lacking = {option for option in ("KEEP", "NOTIFY") if option in options}
            loss = "a waiter may lose its place in the queue at the end of a slice, as its module is older than 0.2"
        elif "NOTIFY" in options and (text.startswith("NOTIFY needs") or "SSUBSCRIBE" in text):
            lacking, loss = {"NOTIFY"}, "each waiting task occupies a connection, as this cluster is older than 7.0"
        else:
            return False
        with self._mutex:
            known = self._of.setdefault(client, set())
            news = lacking - known
            known |= lacking
        if news:
            logger.warning("The server does not know %s: %s.", " and ".join(sorted(news)), loss)
        return bool(lacking)


LACKS = Lacks()


def checked_permits(number: int) -> int:
    """Return a number of permits that the module takes."""
    if not 1 <= number <= MOST_PERMITS:
        raise ValueError(f"permits must be from 1 to {MOST_PERMITS}")
    return number


def linger(seconds: float | None) -> tuple[str | int, ...]:
    """Return the option of an acquire that binds its hold to the connection, or nothing."""
    if seconds is None:
        return ()
    if seconds < 0:
        raise ValueError("linger must not be negative")
    return ("LINGER", min(int(seconds * 1000), MAX_TTL_MS))


def at_least(seconds: float, timeout: float | None) -> tuple[str | int, ...]:
    """Return the option of a release before which the hold does not end, or nothing."""
    if not 0 <= seconds <= (timeout or MAX_TTL_MS / 1000):
        raise ValueError("at_least must be from 0 to the timeout")
    return ("ATLEAST", ttl_ms(seconds)) if seconds else ()


def distinct_names(names: Sequence[str | bytes], shared: Sequence[str | bytes]) -> tuple[str | bytes, ...]:
    """Return the names of a multi-lock, the exclusive ones first."""
    if isinstance(names, str | bytes) or isinstance(shared, str | bytes):
        raise TypeError("a multi-lock takes a list of names")
    both = (*names, *shared)
    if not both or len(set(both)) < len(both):
        raise ValueError("a multi-lock takes one name or more, each once")
    return both


def checked_grace(seconds: float) -> float:
    """Return a grace that the module takes."""
    if not 0 <= seconds <= LONGEST_GRACE:
        raise ValueError(f"grace must be from 0 to {LONGEST_GRACE} seconds")
    return seconds


def grace_ms(client: Any, seconds: float) -> int:
    """Return the grace as the module takes it. 0 is none: the caller wants none, or the server does not know it."""
    if not seconds or LACKS.has(client, "KEEP"):
        return 0
    return max(int(seconds * 1000), 1)


def socket_timeout(client: Any) -> float | None:
    """Return how many seconds the client waits for a reply: None is for ever."""
    # A cluster's client has its settings elsewhere than one with a pool.
    owner = getattr(client, "connection_pool", None) or getattr(client, "nodes_manager", None)
    settings: Mapping[str, Any] = getattr(owner, "connection_kwargs", {})
    timeout: float | None = settings.get("socket_timeout", DEFAULT_SOCKET_TIMEOUT)
    return timeout


def impatient(connection_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a connection that is worth a second, no more."""
    timeouts = ("socket_timeout", "socket_connect_timeout") if "host" in connection_kwargs else ()
    return {**connection_kwargs, **dict.fromkeys(timeouts, 1.0)}


def encode(client: Any, value: Any) -> bytes:
    """Return a token as the client sends it."""
    owner = client if hasattr(client, "get_encoder") else client.connection_pool
    encoded: bytes = owner.get_encoder().encode(value)
    return encoded


def ttl_ms(seconds: float) -> int:
    """Return the ttl as the module takes it: from 1 ms to its longest."""
    return min(max(int(seconds * 1000), 1), MAX_TTL_MS)


def lock_ttl_ms(timeout: float | None) -> int:
    """Return the ttl of a lock with this timeout: the longest when it has none."""
    return ttl_ms(timeout) if timeout else MAX_TTL_MS


def is_wrong_type(error: RedisError) -> bool:
    """Return whether the key is no lock of the module: a client of old holds it by SET NX."""
    return str(error).startswith("WRONGTYPE")


def is_not_held(error: RedisError) -> bool:
    """Return whether LOCK.EXEC has done nothing, as its token holds nothing."""
    return str(error).startswith("NOTHELD")


def refuse_what_is_missing(error: RedisError, command: str, options: Sequence[str | int] = ()) -> None:
    """Raise NotSupportedError when an error says that the server lacks this command, or one of these options."""
    text, missing = str(error), []
    needed = "the module redis-lock 0.2 or newer"
    if re.match(rf"unknown command ['`]{re.escape(command)}['`]", text, re.IGNORECASE):
        missing = [command]
        if command == "LOCK.EXEC":
            needed += " on Redis 7.0 or newer"
    elif text.startswith("unknown option"):
        # A module that knows some of them tells which.
        missing = [option for option in ("LIMIT", "LINGER") if option in options and option not in text]
    elif text.startswith("wrong number of arguments") and "ATLEAST" in options:
        missing = ["ATLEAST"]
    if missing:
        raise NotSupportedError(f"the server does not know {' and '.join(missing)}: {needed} does") from error


def may_ask_again(error: RedisError) -> bool:
    """Return whether the answer got lost, or the server handed its role on: the same token may ask again."""
    return (
        not isinstance(error, ResponseError)
        or isinstance(error, TryAgainError)
        or "instance state changed" in str(error)
    )


def held(info: Any, token: bytes) -> Held | None:
    """Return the token's hold out of the reply to LOCK.INFO, or None when it holds nothing."""
    lock = _as_map(info or ())
    for holder in map(_as_map, lock.get(b"holders", ())):
        if holder[b"token"] == token:
            return Held(holder[b"fence"], lock[b"mode"].decode(), lock.get(b"limit", 1), holder[b"ttl"])
    return None


def available(info: Any, permits: int) -> int:
    """Return how many permits are free by the reply to LOCK.INFO."""
    lock = _as_map(info or ())
    if lock.get(b"mode") == b"exclusive":
        return 0
    limit: int = lock.get(b"limit", permits)
    return max(min(permits, limit) - len(lock.get(b"holders", ())), 0)


def _as_map(reply: Any) -> Mapping[bytes, Any]:
    """RESP3 has maps, RESP2 has flat arrays."""
    return reply if isinstance(reply, Mapping) else dict(zip(reply[::2], reply[1::2], strict=True))


def held_token(hold: Any, doing: str, name: Any) -> bytes:
    """Return the token of a hold, which must be there."""
    if hold.token is None:
        raise LockError(f"Cannot {doing} an unlocked lock", lock_name=name)
    token: bytes = hold.token
    return token


def not_owned(doing: str, name: Any) -> LockNotOwnedError:
    """Return the error of an owner that is none any more."""
    return LockNotOwnedError(f"Cannot {doing} a lock that's no longer owned", lock_name=name)
