"""What the sync and the asyncio lock have in common: everything but the waiting for an answer."""

import asyncio
import functools
import inspect
import logging
import math
import re
import time
from binascii import crc_hqx
from collections.abc import Callable, Mapping, Sequence
from threading import Lock as Mutex
from threading import local
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar
from weakref import WeakSet

from ._libraries import Library

logger = logging.getLogger("redis_lock_client")

# The longest hold that the module grants, some 8,900 years: what a lock without timeout gets.
MAX_TTL_MS = 2**48
# A shorter linger makes no renewals more frequent.
SHORTEST_SPAN_MS = 300

# In seconds: of this timeout a lease leaves one millisecond.
TOO_SHORT_TIMEOUT = 0.003

# In a suspended machine the hold goes on to its end. On macOS time.monotonic() stands still then,
# and CLOCK_MONOTONIC does not.
CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

# The share of the client's socket timeout for which one command waits. The rest is for the way there and back.
SLICE = 0.75

# For how many seconds one command waits by a client that never times out, and how late its reply may be.
LONGEST_SLICE = 30.0
LATE = 5.0

# How long a connection that never times out may be silent until it is looked at.
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

# For how many seconds of failures in a row it is sent again where another server may take over, and the longest pause.
FAILOVER = 60.0
LONGEST_PAUSE = 0.5

# For how many seconds a release or a renewal looks for the server that takes over.
FOLLOW = 10.0

# For how many seconds a renewal pauses that the server could not answer yet.
TRY_AGAIN = 0.2

# How often a lock that an old client holds is asked for: it has no queue to stand in.
OLD_CLIENT_PACE_MS = 50

# For how many seconds at most a server that does not answer holds up who gives up.
IMPATIENCE = 1.0

SLOTS = 16384

MODULE_MISSING = (
    "the server has not loaded the module redis-lock. Load it with `loadmodule /path/libredis_lock.so` in the server's "
    "configuration, and restart the server. Where modules cannot be loaded, `fallback=True` "
    "makes it SET NX PX: without fair queue, fences, readers and writers, semaphores, multi-locks, guarded commands"
)

SILENT = "the server has not answered in time"

# Of a function that a sync lock is to be held for.
RUNS_LATER = (
    "is async or a generator, and would run after the lock is released. "
    "Async functions need the locks in redis_lock_client.asyncio"
)


class Hold(local):
    """What a thread holds. Unlike redis-py's it has its defaults in every thread, not only in the one that made it."""

    token: bytes | None = None
    fence: int | None = None
    lease: "Lease | None" = None


def now() -> float:
    """Return the seconds of a clock that goes on while the machine is suspended, where there is one."""
    return time.monotonic() if CLOCK is None else time.clock_gettime(CLOCK)


class Lease:
    """Until when a hold lasts by this process's clock.

    Each ttl counts from the sending of its request, less 1 % and 2 ms: clocks differ in speed.
    """

    def __init__(self, ttl_ms: int, is_async: bool) -> None:
        """Begin with a request that is sent now, by a thread or by a task."""
        start = now()
        self._late = start + ttl_ms / 10_000
        self.end = _end(start, ttl_ms / 1000)
        # When the last request was sent that found the hold.
        self._held_at = start
        # For how long it lasts from then on, if the connection that it is bound to may be lost.
        self._lingers = math.inf
        self.is_released = False
        # Called when the end has come nearer.
        self.watchers: set[Callable[[], object]] = set()
        # Held by a renewal under way in another thread, or in another task: over two connections
        # one could overtake the other, and the server end the hold sooner than this lease.
        self.renewing: Any = asyncio.Lock() if is_async else Mutex()

    def is_fresh(self) -> bool:
        """Return whether no more than a tenth of the first ttl has passed."""
        return now() <= self._late

    def left(self) -> float:
        """Return the seconds until the end: 0 when it is over."""
        return max(0.0, self.end - now())

    def sends(self, ttl_ms: int) -> tuple[float, float, float]:
        """Return the end, the one that a request sets, and now. One that shortens the lease counts, reply or not."""
        before, sent = self.end, now()
        end = _end(sent, ttl_ms / 1000)
        self._lingers = math.inf
        self._shorten(end)
        return before, end, sent

    def answers(self, ends: tuple[float, float, float], is_held: bool) -> bool:
        """Return whether the request has set the lease. A lease that was over by then stays lost."""
        before, end, sent = ends
        if not is_held or self.is_released or now() >= before:
            self.ends()
            return False
        self._held_at = max(self._held_at, sent)
        self.end = min(end, _end(self._held_at, self._lingers))
        return True

    def is_unbound(self, linger: float) -> None:
        """The renewal under way could not bind the hold to a connection, and the one before may be lost."""
        self._lingers = linger

    def breaks(self, linger: float) -> None:
        """A connection is lost. It may have been lost as soon as the hold was found last, and lingers from then on."""
        self._shorten(_end(self._held_at, linger))

    def pause_before_asking_again(self) -> float:
        """Return how long to wait after TRYAGAIN. It is no loss until the lease is over: 0 then."""
        return min(TRY_AGAIN, self.left())

    def releases(self) -> None:
        """A release is sent, which ends it also without a reply. That is no loss."""
        self.is_released = True
        self.ends()

    def ends(self) -> None:
        """It is known to be over."""
        self._shorten(-math.inf)

    def _shorten(self, end: float) -> None:
        if end < self.end:
            self.end = end
            for tell in tuple(self.watchers):
                tell()


def _end(start: float, seconds: float) -> float:
    return start + seconds * 0.99 - 0.002


class OwnOptions(TypedDict, total=False):
    """Those that django-redis' `cache.lock` does not have."""

    raise_on_release_error: bool
    grace: float
    linger: float | None
    at_least: float
    fallback: bool


class LockOptions(OwnOptions, total=False):
    """The options that every lock takes."""

    timeout: float | None
    sleep: float
    blocking: bool
    blocking_timeout: float | None
    thread_local: bool


class AsyncLockOptions(LockOptions, total=False):
    """The options that every lock for asyncio takes."""

    wait: Literal["block", "notify"]


Options = TypeVar("Options", LockOptions, AsyncLockOptions)


def merged(options: Options, more: Options) -> Options:
    """Return both, and where both say something the second."""
    both = options.copy()
    both.update(more)
    return both


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


# What the user is not allowed to ask for.
UNKNOWN = Held(0, "", 0, 0)


class Patience:
    """How long an acquire still waits, and in what slices."""

    def __init__(
        self,
        seconds: float | None,
        socket_timeout: float | None = None,
        is_roaming: bool = False,
        sleep: float = 0,
    ) -> None:
        """Wait for `seconds`, or for ever when it is None, by a client that reads for `socket_timeout` seconds.

        A client that is roaming finds the server that takes over from one that failed. The fallback polls every
        `sleep` seconds.
        """
        self.sleep = sleep
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._slice = LONGEST_SLICE if socket_timeout is None else socket_timeout * SLICE
        # Who asks once waits as the client does for any command.
        self._is_bounded = socket_timeout is None and seconds != 0
        # Whether a request of this acquire said KEEP: then it may have left a place, which has to be given up.
        self.kept = False
        self._is_roaming = is_roaming
        self._failing_since = 0.0

    def left_ms(self) -> float:
        """Return the whole milliseconds that are left, or infinity."""
        left = self._end - time.monotonic()
        return left if left == math.inf else max(int(left * 1000), 0)

    def bound(self) -> float | None:
        """Return within how many seconds the next reply has to come to a client that would wait for it for ever."""
        return min(self.left_ms() / 1000, self._slice) + LATE if self._is_bounded else None

    def block(self, grace_ms: int) -> tuple[Any, ...]:
        """Return the options of the next command that waits: none when nothing is left, because BLOCK 0 has no end."""
        left = self.left_ms()
        block = max(int(min(left, self._slice * 1000)), 1)
        return ("BLOCK", block, *self._keep(grace_ms)) if left else ()

    def notify(self, longest_ms: int, channel: bytes, grace_ms: int) -> tuple[Any, ...]:
        """Return the options of the next command that waits by a channel: none when nothing is left."""
        left = self.left_ms()
        longest = max(int(min(left, longest_ms)), 1)
        return ("NOTIFY", longest, channel, *self._keep(grace_ms)) if left else ()

    def _keep(self, grace_ms: int) -> tuple[str | int, ...]:
        if not grace_ms:
            return ()
        self.kept = True
        return ("KEEP", grace_ms)

    def pause(self, failures: int, was_silent: bool) -> float | None:
        """Return the seconds until the same token asks again after failures in a row, None when it should not.

        The last was silent when no reply has come in time.
        """
        now, left = time.monotonic(), self.left_ms() / 1000
        if failures == 1:
            self._failing_since = now
        # A request that does not wait is sent a second time only, because its reply was lost. A silent server would
        # take as long again, unless another one takes over.
        if not left:
            return None if failures > 1 or (was_silent and not self._is_roaming) else 0
        if now - self._failing_since > FAILOVER if self._is_roaming else failures > RESENDS:
            return None
        pause: float = min(FIRST_PAUSE * 2 ** min(failures - 1, 10), left)
        return min(pause, LONGEST_PAUSE) if self._is_roaming else pause

    def pace(self, pttl: int) -> float:
        """Return the seconds until an old client's lock, which lives for `pttl` ms, is asked for again."""
        # PTTL answers -1 for a key without ttl and -2 for one that is gone.
        soonest = OLD_CLIENT_PACE_MS if pttl == -1 else min(max(pttl, 1), OLD_CLIENT_PACE_MS)
        return min(soonest, self.left_ms()) / 1000


def refuse_what_runs_later(function: Callable[..., Any]) -> None:
    """Raise TypeError for an async function or a generator: the lock would be released before it has begun."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_of_kind(function) for is_of_kind in kinds):
        raise TypeError(f"{function} {RUNS_LATER}")


def refuse_a_later_result(function: Callable[..., Any], result: Any) -> None:
    """Raise TypeError for what is still to be awaited: no look at a function finds all of those that return it."""
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        # It says nothing more about never having been awaited.
        result.close()
    raise TypeError(f"{function} has returned an awaitable: it {RUNS_LATER}")


class WithoutNotify:
    """Remembers the clients whose cluster is too old for NOTIFY."""

    def __init__(self) -> None:
        """All of them have it."""
        self._clients: WeakSet[Any] = WeakSet()

    def has(self, client: Any) -> bool:
        """Return whether the client does without it."""
        return client in self._clients

    def learn(self, client: Any, error: Exception) -> bool:
        """Return whether an error says that the server lacks it: then ask again without it."""
        if not str(error).startswith("NOTIFY needs") and "SSUBSCRIBE" not in str(error):
            return False
        if not self.has(client):
            self._clients.add(client)
            logger.warning("Each waiting task occupies a connection, as this cluster does not know SSUBSCRIBE.")
        return True


WITHOUT_NOTIFY = WithoutNotify()


def checked_timeout(seconds: float | None) -> float | None:
    """Return a timeout whose lease has an end, and one that has not passed already. 0 is none, as in the libraries."""
    if seconds is None:
        return None
    if not math.isfinite(seconds):
        raise ValueError("timeout must be a finite number: None is for ever")
    if seconds < 0:
        raise ValueError("timeout must not be negative")
    # No grant would come in time, and an acquire would ask without end.
    if 0 < seconds <= TOO_SHORT_TIMEOUT:
        raise ValueError(f"timeout must be above {TOO_SHORT_TIMEOUT} seconds: a lease is shorter by 1 % and 2 ms")
    return seconds


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


def span_ms(ttl_ms: int, linger: float | None) -> int:
    """Return within what time a hold is to be renewed: one whose connection is lost lasts for the linger only."""
    return ttl_ms if linger is None else min(ttl_ms, max(int(linger * 1000), SHORTEST_SPAN_MS))


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


def check_one_slot(names: Sequence[bytes]) -> None:
    """Raise ValueError when the names lie in several slots of a cluster."""
    slots = {name: slot_of(name) for name in names}
    if len(set(slots.values())) > 1:
        where = ", ".join(f"{name!r} in slot {slot}" for name, slot in slots.items())
        raise ValueError(
            f"in a cluster the keys of a multi-lock need one hash tag, as in 'a:{{7}}', 'b:{{7}}': {where}"
        )


def slot_of(name: bytes) -> int:
    """Return the slot of a key in a cluster."""
    _, brace, rest = name.partition(b"{")
    tag, end, _ = rest.partition(b"}")
    return crc_hqx(tag if brace and end and tag else name, 0) % SLOTS


def checked_grace(seconds: float) -> float:
    """Return a grace that the module takes."""
    if not 0 <= seconds <= LONGEST_GRACE:
        raise ValueError(f"grace must be from 0 to {LONGEST_GRACE} seconds")
    return seconds


def grace_ms(seconds: float) -> int:
    """Return the grace as the module takes it. 0 is none."""
    return max(int(seconds * 1000), 1) if seconds else 0


def socket_timeout(library: Library, client: Any, is_async: bool) -> float | None:
    """Return how many seconds the client waits for a reply: None is for ever."""
    # A cluster's client has its settings elsewhere than one with a pool.
    owner = getattr(client, "connection_pool", None) or getattr(client, "nodes_manager", None)
    settings: Mapping[str, Any] = getattr(owner, "connection_kwargs", {})
    if "socket_timeout" not in settings:
        return library.default_socket_timeout(getattr(owner, "connection_class", None), is_async)
    timeout: float | None = settings["socket_timeout"]
    return timeout


def is_cluster(client: Any) -> bool:
    """Return whether the client is one of a cluster."""
    return hasattr(client, "nodes_manager")


def is_roaming(client: Any) -> bool:
    """Return whether the client finds the server that takes over from one that failed."""
    return is_cluster(client) or hasattr(getattr(client, "connection_pool", None), "sentinel_manager")


def would_wait(pool: Any) -> bool:
    """Return whether a pool would make its caller wait for a connection, because all of them are in use."""
    if not hasattr(pool, "timeout"):
        return False
    if hasattr(pool, "can_get_connection"):
        return not pool.can_get_connection()
    return hasattr(pool, "pool") and bool(pool.pool.empty())


def close_idle_connections(library: Library, client: Any) -> None:
    """Close the connections in a sync client's pools. Those in use stay open; a closed one opens again when used."""
    if not is_cluster(client):
        # What only behaves like a client may have none.
        if pool := getattr(client, "connection_pool", None):
            _close_idle_connections_of(pool)
        return
    for node in client.get_nodes():
        # A node that was not asked yet may have none.
        if of_node := getattr(node, f"{library.name}_connection"):
            _close_idle_connections_of(of_node.connection_pool)


def _close_idle_connections_of(pool: Any) -> None:
    if not hasattr(pool, "pool"):
        pool.disconnect(inuse_connections=False)
        return
    # Most versions of a BlockingConnectionPool close all or none. Nobody takes one out of its queue meanwhile.
    with pool.pool.mutex:
        for connection in filter(None, pool.pool.queue):
            connection.disconnect()


def impatient_pool(pool: Any) -> Any:
    """Return a pool for threads, but one that makes nobody wait: it raises at once as it does in the end."""
    # One state under two classes. A copy would miss a change of the first, and count its connections again.
    kind: Any = type(pool)
    same = object.__new__(_impatient_class(kind))
    same.__dict__ = pool.__dict__
    return same


@functools.cache
def _impatient_class(cls: Any) -> Any:
    return type(cls.__name__, (cls,), {"timeout": property(lambda _: 0), "__del__": lambda _: None})


class SilentError(Exception):
    """No reply has come in time. A client's own retries, each of which would wait as long again, are not for this."""


def bounded(library: Library, client: Any, seconds: float) -> Any:
    """Return a sync client, but one that raises SilentError when a reply takes longer."""
    kind: Any = type(client)
    of_node = f"get_{library.name}_connection"
    if not (hasattr(kind, "parse_response") or hasattr(kind, of_node)):
        # It only behaves like a client.
        return client
    same = object.__new__(_bounded_class(kind, library, of_node))
    same.__dict__ = client.__dict__
    same._replies_within = seconds
    return same


@functools.cache
def _bounded_class(cls: Any, library: Library, of_node: str) -> Any:
    def parse_response(self: Any, connection: Any, *args: Any, **options: Any) -> Any:
        try:
            if not connection.can_read(timeout=self._replies_within):
                raise SilentError
        except BaseException:
            # The next command would read what comes late.
            connection.disconnect()
            raise
        return cls.parse_response(self, connection, *args, **options)

    def connection_of(self: Any, node: Any) -> Any:
        return bounded(library, getattr(cls, of_node)(self, node), self._replies_within)

    # A cluster's client has one for each node.
    own = {of_node: connection_of} if hasattr(cls, of_node) else {"parse_response": parse_response}
    return type(cls.__name__, (cls,), {"__slots__": ("_replies_within",), "__del__": lambda _: None, **own})


def impatient(connection_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a connection that is worth no more than `IMPATIENCE`."""
    # A Unix socket has one of them in some versions only.
    timeouts = () if "path" in connection_kwargs else ("socket_timeout", "socket_connect_timeout")
    return {**connection_kwargs, **dict.fromkeys(timeouts, IMPATIENCE)}


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


def is_wrong_type(error: Exception) -> bool:
    """Return whether the key is no lock of the module: a client of old holds it by SET NX."""
    return str(error).startswith("WRONGTYPE")


def is_partial(error: Exception) -> bool:
    """Return whether the token holds a part of what it asked for."""
    return str(error).startswith("PARTIAL")


def is_not_held(error: Exception) -> bool:
    """Return whether LOCK.EXEC has done nothing, as its token holds nothing."""
    return str(error).startswith("NOTHELD")


def is_cancelled(error: Exception) -> bool:
    """Return whether the wait was ended by LOCK.CANCEL."""
    return str(error).startswith("CANCELLED")


def is_ttl_too_long(error: Exception) -> bool:
    """Return whether the server bounds its leases, and this one was to be longer."""
    return "lock.max-ttl" in str(error)


def unknown_command(error: Exception) -> str | None:
    """Return the name of the module's command that the server does not know, or None."""
    found = re.match(r"unknown command ['`]((?:RW)?LOCK\.[A-Z]+)", str(error), re.IGNORECASE)
    return found[1].upper() if found else None


def refused_by_the_client(library: Library, error: Exception) -> Exception | None:
    """Return the error of a server for one of a cluster's client, which sends no command that its server lacks."""
    found = re.match(r"((?:RW)?LOCK\.[A-Z]+) command doesn't exist", str(error))
    return library.response_error(f"unknown command '{found[1]}'") if found else None


def is_try_again(library: Library, error: Exception) -> bool:
    """Return whether the server could not answer yet. Some versions have a class for this in clusters only.

    A cluster's client asks again by itself, and in the end says only that it has done so too often.
    """
    return isinstance(error, library.try_again_error) or str(error).startswith(("TRYAGAIN", "TTL exhausted"))


def may_ask_again(library: Library, error: Exception, is_roaming: bool) -> bool:
    """Return whether the answer got lost, or the server handed its role on: the same token may ask again."""
    return (
        not isinstance(error, (library.response_error, library.cluster_exception))
        or is_try_again(library, error)
        or "instance state changed" in str(error)
        or (is_roaming and (isinstance(error, library.passing) or str(error).startswith("NOREPLICAS")))
    )


def held(info: Any, token: bytes) -> Held | None:
    """Return the token's hold out of the reply to LOCK.INFO, or None when it holds nothing."""
    lock = _as_map(info or ())
    for holder in map(_as_map, lock.get(b"holders", ())):
        if holder[b"token"] == token:
            return Held(holder[b"fence"], lock[b"mode"].decode(), lock.get(b"limit", 1), holder[b"ttl"])
    return None


def is_cut(info: Any) -> bool:
    """Return whether the reply to LOCK.INFO lacks some holders: unless asked for more, it has the first 1,000."""
    lock = _as_map(info or ())
    return bool(len(lock.get(b"holders", ())) < lock.get(b"holder-count", 0))


def is_held(info: Any) -> bool:
    """Return whether anybody holds the lock by the reply to LOCK.INFO."""
    return bool(_as_map(info or ()).get(b"holders"))


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
