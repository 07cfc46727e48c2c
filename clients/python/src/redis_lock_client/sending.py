"""What a lock is told, what it sends, and what it makes of the answers."""

import logging
import os
from collections.abc import Callable
from threading import local
from typing import Any, ClassVar, Literal

from . import fallback
from .acquire import FOLLOW, Patience
from .lease import MAX_TTL_MS, TOO_SHORT_TIMEOUT, Lease, ttl_ms
from .options import GRACE, LONGEST_GRACE, check_time
from .replies import Kind, LockError, ModuleMissingError, UnsupportedError, is_unknown_command, word_of
from .steps import Steps, T
from .telemetry import Span

logger = logging.getLogger("redis_lock_client")

MODULE_MISSING = (
    "the server has not loaded the module redis-lock. Load it with `loadmodule /path/libredis_lock.so` in the server's "
    "configuration, and restart the server. Where modules cannot be loaded, `fallback=True` "
    "makes a Lock SET NX PX: without fair queue, fences, readers and writers, semaphores, multi-locks, guarded commands"
)


class Hold:
    token: Any = None
    fence: int | None = None
    lease: Lease | None = None
    seen: Span | None = None


# What a thread holds. Unlike redis-py's it has its defaults in every thread, not only in the one that made it.
class HoldOfThread(Hold, local):
    pass


# The options of a lock, and how commands about its keys are sent.
class Sender:
    # The command that takes the hold.
    ACQUIRE: ClassVar[str] = "LOCK.ACQUIRE"
    # The option from which the ttl is.
    _ttl_option = "timeout"
    _driver_class: ClassVar[Any]
    # Whether an old client's string may lie under its key.
    _meets_strings = True

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        grace: float = GRACE,
        linger: float | None = None,
        at_least: float = 0,
        fallback: bool = False,
        wait: Literal["block", "notify"] = "block",
    ) -> None:
        """Take the arguments of the library's own lock, and options of this package. Times are in seconds.

        The place in the queue outlives a connection that waited there by `grace` seconds: between two slices of a
        wait, or until the client has connected again. If this process dies while it waits, the others
        wait for so long at most when its turn comes. 0 is none.

        With `linger` the hold ends so long after its connection is lost, and not later than before.
        With `at_least` a release ends the hold no sooner than so long after the grant.

        With `fallback` the lock does with SET NX PX on a server that has not loaded the module: it polls every `sleep`
        seconds, and has no fence.

        With `wait="block"` each waiting thread or task occupies a connection. With `wait="notify"`, in asyncio only,
        all the waiting tasks of a client share two: one that hears of their grants, and one for their commands.
        """
        self._driver: Any = self._driver_class.of(redis)
        self.redis = redis
        self.name: Any = name
        if timeout:
            # No grant of a shorter one would come in time: a lease is shorter by 1 % and 2 ms.
            check_time(self._ttl_option, timeout, above=TOO_SHORT_TIMEOUT)
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        check_time("grace", grace, LONGEST_GRACE)
        self.grace = grace
        self._grace_ms = max(int(grace * 1000), 1) if grace else 0
        check_time("linger", linger or 0)
        self.linger = linger
        check_time("at_least", at_least, timeout or MAX_TTL_MS / 1000)
        self.at_least = at_least
        self.fallback = fallback
        ways = ("block", "notify") if self._driver.is_async else ("block",)
        if wait not in ways:
            raise ValueError(f"wait must be one of {ways}")
        self.wait = wait
        # What a request says of its hold beside the ttl.
        self._terms: tuple[Any, ...] = ()
        # The keys that are held: one, but for a MultiLock. And how a request names them.
        self._names: tuple[str | bytes, ...] = (name,)
        self._keys: tuple[Any, ...] = (name,)
        self.local: Any = HoldOfThread() if self.thread_local else Hold()

    # What is sent, and what becomes of the answers.

    def _send(self, *commands: tuple[Any, ...], **how: Any) -> Any:
        return self._driver.send(self.redis, commands, **how)

    # Send in one way there and back. Return the replies, or raise the first error of them.
    def _answers(self, *commands: tuple[Any, ...], **how: Any) -> Steps[list[Any]]:
        replies: list[Any] = yield self._send(*commands, **how)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _ask(self, *command: Any, **how: Any) -> Steps[Any]:
        return (yield from self._answers(command, **how))[0]

    # Return the reply for each key, None where it holds no lock.
    def _each(self, command: str, token: Any, *args: Any, **how: Any) -> Steps[list[Any]]:
        commands = [(command, name, token, *args) for name in self._names]
        if self._falls_back_now():
            commands = [fallback.script(command, self.name, token, *args)]
        replies: list[Any] = yield self._send(*commands, **how)
        for reply in replies:
            # A string that was written over the key has ended the hold.
            if isinstance(reply, Exception) and word_of(reply) != "WRONGTYPE":
                extends = command == "LOCK.RENEW" and args[0] != ttl_ms(self.timeout or None)
                option = "the time of extend()" if extends else None
                raise (yield from self._told(reply, command, option)) from reply
        return [None if isinstance(reply, Exception) else reply for reply in replies]

    def _patience(self, seconds: float | None, failover: float = FOLLOW) -> Patience:
        return Patience(seconds, self._driver.socket_timeout, self._driver.is_roaming, failover)

    # Do it again when an answer got lost, or will be another one in time. The same token gets its own fence.
    def _retrying(self, patience: Patience, make: Callable[..., Steps[T]], *args: Any) -> Steps[T]:
        driver = self._driver
        while True:
            try:
                result = yield from make(*args)
                patience.answered()
                return result
            except driver.error as error:
                kind = driver.kind_of(error)
                is_final = kind is Kind.FINAL or isinstance(error, LockError | UnsupportedError)
                was_silent = isinstance(error, driver.errors.TimeoutError)
                pause = None if is_final else patience.pause(kind, was_silent)
                if pause is None:
                    raise
            yield driver.sleep(pause)

    # Ask again once when the answer got lost.
    def _once_more(self, make: Callable[..., Steps[T]], *args: Any) -> Steps[T]:
        return self._retrying(self._patience(0), make, *args)

    # Return the error that the user gets for an answer of the server. A ttl is that of an option, unless told.
    def _told(self, error: Exception, command: str, option: str | None = None) -> Steps[Exception]:
        if "lock.max-ttl" in str(error):
            return LockError(f"{option or self._ttl_option} is too long: {error}", self.name)
        if not isinstance(error, UnsupportedError) and is_unknown_command(error, command):
            if (yield from self._has_no_module()):
                return ModuleMissingError(MODULE_MISSING)
            if command.lower() in str(error).lower():
                return UnsupportedError(f"the server does not know {command}: its module redis-lock is an older one")
        return error

    # Without the module.

    # Return whether the lock has to do without the module. Raise ModuleMissingError when this one cannot.
    def _falls_back(self) -> Steps[bool]:
        driver = self._driver
        if self.fallback and driver.falls_back is None:
            lacks_module = yield from self._has_no_module()
            # Another thread or task may have found out meanwhile.
            if driver.falls_back is None:
                driver.falls_back = lacks_module
                if lacks_module:
                    logger.warning(fallback.LOST)
        is_plain = self._kind() == ("LOCK.ACQUIRE",) and not self.at_least and self.linger is None
        if self._falls_back_now() and not is_plain:
            raise self._not_in_the_fallback("anything but a Lock without at_least and linger")
        return self._falls_back_now()

    def _falls_back_now(self) -> bool:
        return bool(self.fallback and self._driver.falls_back)

    def _not_in_the_fallback(self, what: str) -> ModuleMissingError:
        return ModuleMissingError(f"{what} is not available in the fallback: {MODULE_MISSING}")

    def _has_no_module(self) -> Steps[bool]:
        command = ("LOCK.RELEASE", self.name, os.urandom(16).hex())
        (reply,) = yield self._send(command)
        if isinstance(reply, Exception) and self._driver.kind_of(reply) is not Kind.FINAL:
            raise reply
        return isinstance(reply, Exception) and is_unknown_command(reply, command[0])

    # Return what tells a hold of this lock from one of another that has the same token.
    def _kind(self) -> tuple[Any, ...]:
        return (self.ACQUIRE, *self._terms)
