"""One client makes a value, and all others that want it wait in the server's queue and get it: LOCK.ONCE."""

import contextlib
import functools
import hashlib
import inspect
import json
import math
import random
import re
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

from . import aio, lock
from .acquire import FAILOVER, Attempt
from .core import Core, Done
from .driver import is_of_asyncio
from .keeper import AsyncKeepAlive, KeepAlive
from .lease import ttl_ms
from .once import called, refuse_what_runs_later, wrapping
from .options import check_time
from .replies import FingerprintError, InProgressError, Kind, word_of
from .sending import logger
from .steps import Steps

F = TypeVar("F", bound=Callable[..., Any])

# For how many seconds the result of an idempotent call is kept: a day.
KEEP = 86_400.0

# A template of the arguments, "page:{number}", or what returns the name for the same arguments.
Key = str | Callable[..., str | bytes]

# A name up to the end of its hash tag, by which a cluster finds the slot.
_TAGGED = re.compile(r"[^{]*\{[^}]+\}")


class XFetch:
    """Values are made anew at random times before their end: the nearer it is, and the slower the making, the likelier.

    So the callers of a value do not all find it early at the same moment (Vattani, Chierichetti and Lowenstein, 2015).
    """

    def __init__(self, delta: float | None = None, beta: float = 1.0) -> None:
        """Take the seconds that the making takes, and how eager to be: above 1 is sooner.

        Without `delta` it is measured by the calls that this object is given to. Before the first nothing is early.
        """
        self.delta = delta
        self.beta = beta
        self._measures = delta is None

    # Return how many seconds before its end the value counts as early this time.
    def seconds(self) -> float:
        return -(self.delta or 0.0) * self.beta * math.log(1 - random.random())

    # The making took so many seconds.
    def made_in(self, seconds: float) -> None:
        if self._measures:
            self.delta = seconds


class SharedOptions(TypedDict, total=False):
    """The times of a value in seconds, and how it becomes bytes and is read from them."""

    keep: float
    ttl: float
    wait: float | None
    pack: Callable[[Any], bytes | str] | None
    unpack: Callable[[bytes], Any] | None


class ResultOptions(SharedOptions, total=False):
    """The same, and from how many seconds before its end a value is made anew."""

    early: float | XFetch | None


# Return the key of the lock under which a value is made: in the slot of the value.
def lock_key(name: str | bytes) -> str | bytes:
    if isinstance(name, bytes):
        return str(lock_key(name.decode("latin-1"))).encode("latin-1")
    return f"{name}:once" if _TAGGED.match(name) else f"{{{name}}}:once"


# The lock under which a value is made, and what is known of the value.
class ResultCore(Core):
    ACQUIRE = "LOCK.ONCE"
    # What renews while the maker works.
    _keeping: ClassVar[Any]
    # No old client locks by this key, and no wait makes a string of what lies under the other.
    _meets_strings = False
    _ttl_option = "ttl"

    # With a mark, values begin with it, and those that begin with another one are refused.
    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        *,
        keep: float = 60,
        early: float | XFetch | None = 10,
        ttl: float = 30,
        wait: float | None = 5,
        pack: Callable[[Any], bytes | str] | None = None,
        unpack: Callable[[bytes], Any] | None = None,
        mark: bytes = b"",
    ) -> None:
        check_time("keep", keep, above=0)
        check_time("ttl", ttl, above=0)
        super().__init__(redis, lock_key(name), timeout=ttl, blocking_timeout=wait, thread_local=False)
        seconds = early.seconds() if isinstance(early, XFetch) else early
        check_time("early", seconds or 0)
        self._result, self._keys = name, (self.name, name)
        self._keep_ms = ttl_ms(keep)
        # A value must not be early from its first moment on.
        self._early_ms = -1 if seconds is None else int(min(seconds * 1000, self._keep_ms / 2))
        self._terms = () if seconds is None else ("EARLY", self._early_ms)
        self._early, self._pack, self._unpack, self._mark = early, pack, unpack, mark
        # The value as it is stored, or None.
        self.found: Any = None

    def _ask_blocking(self, attempt: Attempt) -> Steps[Any]:
        reply = yield from super()._ask_blocking(attempt)
        if isinstance(reply, bytes):
            attempt.patience.ends()
            reply = [reply, None]
        self.found, fence = reply if isinstance(reply, list) else (None, reply)
        return fence

    # Return the value, made by this call or by another one.
    @Done
    def take(self, make: Callable[[], Any]) -> Steps[Any]:
        if not (yield from self._look()):
            return self._opened(self.found)
        since = time.monotonic()
        kept = self._keeping(self, is_new=True)
        try:
            yield from kept.begin()
            value = self._packed((yield called(self.redis, make)))
        except BaseException as error:
            kept.stop()
            with contextlib.suppress(*self._driver.error):
                yield from self._ends(self._release())
            # The value of before is better than none.
            if self.found is None or not isinstance(error, Exception):
                raise
            logger.warning("A new value of %r could not be made: the old one is used", self._result, exc_info=error)
            return self._opened(self.found)
        kept.stop()
        if isinstance(self._early, XFetch):
            self._early.made_in(time.monotonic() - since)
        yield from self._ends(self._store(value))
        return self._opened(value)

    # Return whether this caller is to make the value. Else it is found. Raise InProgressError when the wait is over.
    def _look(self) -> Steps[bool]:
        patience = self._patience(self.blocking_timeout, FAILOVER)
        asked = ("GET", self._result), ("PTTL", self._result)
        self.found, pttl = yield from self._retrying(patience, self._answers, *asked)
        is_maker = False
        if self.found is not None and 0 <= pttl <= self._early_ms:
            try:
                is_maker = yield from self._acquire(blocking=False)
            except self._driver.error as error:
                # Nobody waits because of a value that is there, nor fails.
                if self._driver.kind_of(error) is Kind.FINAL:
                    raise
        # What was early may be gone meanwhile.
        if not is_maker and self.found is None:
            is_maker = yield from self._acquire(blocking_timeout=patience.left_ms() / 1000)
        if not is_maker and self.found is None:
            raise InProgressError("Unable to get the value within the time specified: it is being made", self.name)
        return is_maker

    # Store the value and release. One that comes too late is not stored: another caller may have made it since.
    def _store(self, value: bytes) -> Steps[None]:
        token, lease, seen = self.local.token, self.local.lease, self.local.seen
        patience = self._patience(lease.left())
        lease.releases()
        save = ("LOCK.EXEC", self.name, token, "SET", self._result, value, "PX", self._keep_ms)
        release = ("LOCK.RELEASE", self.name, token)
        try:
            yield from self._retrying(patience, self._answers, save, release)
            self._forget(token, seen)
        except self._driver.error as error:
            is_lost = word_of(error) == "NOTHELD"
            self._forget(token, seen, is_lost)
            if not is_lost and self._driver.kind_of(error) is Kind.FINAL:
                raise (yield from self._told(error, "LOCK.EXEC")) from error
            # It is a value all the same, for the caller that has made it.
            logger.warning("A value of %r may not be stored: %s", self._result, error)

    # Return the value as bytes.
    def _packed(self, value: Any) -> bytes:
        packed = value if self._pack is None else self._pack(value)
        return self._mark + bytes(self._driver.encoder(self.redis).encode(packed))

    # Return the value of what is stored.
    def _opened(self, stored: bytes) -> Any:
        if not stored.startswith(self._mark):
            raise FingerprintError(f"{self._result!r} was used before, and with other arguments")
        unpack = self._unpack or self._driver.encoder(self.redis).decode
        return unpack(stored[len(self._mark) :])


class Result(ResultCore, lock.Lock):
    _keeping = KeepAlive


class AsyncResult(ResultCore, aio.Lock):
    _keeping = AsyncKeepAlive


# Return the value under the name, of the client's kind.
def result_of(redis: Any, name: str | bytes, **options: Any) -> Any:
    return (AsyncResult if is_of_asyncio(redis) else Result)(redis, name, **options)


def once(redis: Any, name: str | bytes, make: Callable[[], Any], **options: Unpack[ResultOptions]) -> Any:
    """Return the value under the key `name`. One of all callers makes it, and the others wait and get it.

    `make()` returns bytes or text, or what `pack` makes bytes or text of. All callers, the maker too, get what
    `unpack` makes of the bytes; without it what the client's GET would return. Times are in seconds.

    The value lives for `keep` seconds (60). A caller that finds it `early` seconds before its end (10, and at most half
    of `keep`) or later makes the next one, while the others use the old one. If it fails, it gets the old one, too.
    `early` can be an `XFetch`, or None for never. A caller waits for `wait` seconds (5; None is for ever) before
    InProgressError, a LockError, is raised. If the process of a maker dies, the next one makes the value after `ttl`
    seconds (30); while the maker works that is renewed.

    With a client for asyncio `make` is a coroutine function, and the call is to be awaited.

    An error of `make` goes to its caller, and the next one in the queue makes the value. A maker that has lost its lock
    meanwhile gets its value, which is not stored. A server without LOCK.ONCE raises UnsupportedError or
    ModuleMissingError.
    """
    refuse_what_runs_later(make, redis)
    return result_of(redis, name, **options).take(make)


# Return what names the key of a call.
def naming(function: Callable[..., Any], key: Key) -> Callable[..., str | bytes]:
    if callable(key):
        return key
    signature = inspect.signature(function)
    return lambda *args, **kwargs: key.format(**arguments_of(signature, args, kwargs))


# Return the arguments of a call by their names.
def arguments_of(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


# Return the arguments of a call as JSON.
def json_of(function: Callable[..., Any], signature: inspect.Signature, /, *args: Any, **kwargs: Any) -> str:
    try:
        return json.dumps(arguments_of(signature, args, kwargs), sort_keys=True)
    except TypeError as error:
        raise TypeError(f"{function} needs a `fingerprint`, as its arguments are no JSON: {error}") from error


def single_flight(redis: Any, key: Key, **options: Unpack[ResultOptions]) -> Callable[[F], F]:
    """Decorate a function whose calls with one key run once, while the others wait and get what it returns.

    `key` is a template of the arguments, `"page:{number}"`, or a function of the same arguments that returns the name.
    The options are those of `once`. With a client for asyncio it is a coroutine function.
    """
    return _decorating(redis, key, options, lambda function: None)


def idempotent(
    redis: Any,
    key: Key,
    fingerprint: Callable[..., str | bytes] | None = None,
    **options: Unpack[SharedOptions],
) -> Callable[[F], F]:
    """Decorate a function that runs once for a key: to call it again returns the result of the first call.

    The result is kept with a fingerprint of the arguments, for `keep` seconds (a day). Other arguments with the same
    key raise FingerprintError. While the first call runs, another one waits for `wait` seconds (5; 0 is not at all)
    before InProgressError is raised. A call that raises leaves nothing, and the next one runs. A process that dies
    after a side effect, and before the result is stored, leaves nothing, too.

    `key` and the options are those of `single_flight`. `fingerprint` is a function of the same arguments that returns
    what they must have in common; without it the arguments must be JSON.
    """

    def marks(function: Callable[..., Any]) -> Callable[..., str | bytes]:
        return fingerprint or functools.partial(json_of, function, inspect.signature(function))

    return _decorating(redis, key, {"keep": KEEP, **options, "early": None}, marks)


# Return what decorates a function. Values are marked by what `marks` makes of the arguments, so that other arguments
# are found out. A wrong client or option is an error here, not at a call.
def _decorating(redis: Any, key: Key, options: Any, marks: Callable[..., Any]) -> Callable[[F], F]:
    result_of(redis, "", **options)

    def decorate(function: F) -> F:
        name, say = naming(function, key), marks(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            more = options
            if say:
                said = say(*args, **kwargs)
                more = {**options, "mark": hashlib.sha256(said.encode() if isinstance(said, str) else said).digest()}
            return result_of(redis, name(*args, **kwargs), **more).take(functools.partial(function, *args, **kwargs))

        return wrapping(redis, function, call)  # type: ignore[return-value]

    return decorate
