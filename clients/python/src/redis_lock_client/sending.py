"""What a lock sends, and what it makes of the answers.

It is written once, as coroutines. Those of a task wait in its loop. Those of a thread never suspend: their driver sends
and sleeps in the thread itself, and `lock.run` goes through them at once.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from . import fallback
from .acquire import FOLLOW, Patience
from .lease import ttl_ms
from .replies import (
    MODULE_MISSING,
    Kind,
    LockError,
    ModuleMissingError,
    UnsupportedError,
    is_unknown_command,
    kind_of,
    word_of,
)

logger = logging.getLogger("redis_lock_client")

T = TypeVar("T")

# What an error about a ttl that is no option's names.
EXTENSION = "the time of extend()"


class Sender:
    """The client of a lock and its keys, and how commands about them are sent."""

    # The command that takes the hold.
    ACQUIRE: ClassVar[str] = "LOCK.ACQUIRE"
    # The option from which the ttl is.
    _ttl_option = "timeout"

    redis: Any
    name: Any
    timeout: float | None
    at_least: float
    linger: float | None
    fallback: bool
    _driver: Any
    # The keys that are held: one, but for a MultiLock.
    _names: tuple[str | bytes, ...]

    async def _send(self, *commands: tuple[Any, ...], **how: Any) -> list[Any]:
        replies: list[Any] = await self._driver.send(self.redis, commands, **how)
        return replies

    # Send in one way there and back. Return the replies, or raise the first error of them.
    async def _answers(self, *commands: tuple[Any, ...], **how: Any) -> list[Any]:
        replies = await self._send(*commands, **how)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _ask(self, *command: Any, **how: Any) -> Any:
        return (await self._answers(command, **how))[0]

    # Return the reply for each key, None where it holds no lock.
    async def _each(self, command: str, token: Any, *args: Any, **how: Any) -> list[Any]:
        if self._falls_back_now():
            commands = [fallback.script(command, self.name, token, *args)]
        else:
            commands = [(command, name, token, *args) for name in self._names]
        replies = await self._send(*commands, **how)
        for at, reply in enumerate(replies):
            if isinstance(reply, Exception):
                # A string that was written over the key has ended the hold.
                if word_of(reply) != "WRONGTYPE":
                    extends = command == "LOCK.RENEW" and args[0] != ttl_ms(self.timeout or None)
                    raise (await self._told(reply, command, EXTENSION if extends else None)) from reply
                replies[at] = None
        return replies

    def _patience(self, seconds: float | None, failover: float = FOLLOW) -> Patience:
        return Patience(seconds, self._driver.socket_timeout, self._driver.is_roaming, failover)

    # Do it again when an answer got lost, or will be another one in time. The same token gets its own fence.
    async def _retrying(self, patience: Patience, make: Callable[..., Awaitable[T]], *args: Any) -> T:
        driver = self._driver
        while True:
            try:
                result = await make(*args)
            except (LockError, UnsupportedError):
                raise
            except driver.error as error:
                kind = kind_of(error) if driver.is_answer(error) else None
                pause = None
                if kind is not Kind.FINAL:
                    pause = patience.pause(kind, isinstance(error, driver.errors.TimeoutError))
                if pause is None:
                    raise
            else:
                patience.answered()
                return result
            await driver.sleep(pause)

    # Ask again once when the answer got lost.
    async def _once_more(self, make: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await self._retrying(self._patience(0), make, *args)

    # Return the error that the user gets for an answer of the server. A ttl is that of an option, unless told.
    async def _told(self, error: Exception, command: str, option: str | None = None) -> Exception:
        if "lock.max-ttl" in str(error):
            return LockError(f"{option or self._ttl_option} is too long: {error}", self.name)
        if not isinstance(error, UnsupportedError) and is_unknown_command(error, command):
            if await self._has_no_module():
                return ModuleMissingError(MODULE_MISSING)
            if command.lower() in str(error).lower():
                return UnsupportedError(f"the server does not know {command}")
        return error

    # Without the module.

    # Return whether the lock has to do without the module. Raise ModuleMissingError when this one cannot.
    async def _falls_back(self) -> bool:
        driver = self._driver
        if not self.fallback:
            return False
        if driver.falls_back is None:
            lacks_module = await self._has_no_module()
            # Another thread or task may have found out meanwhile.
            if driver.falls_back is None:
                driver.falls_back = lacks_module
                if lacks_module:
                    logger.warning(fallback.LOST)
        if driver.falls_back and (what := self._beyond_the_fallback()):
            raise self._not_in_the_fallback(what)
        return self._falls_back_now()

    def _falls_back_now(self) -> bool:
        return bool(self.fallback and self._driver.falls_back)

    # Return what of this lock the fallback cannot do, or None.
    def _beyond_the_fallback(self) -> str | None:
        beyond = {
            "at_least": bool(self.at_least),
            "linger": self.linger is not None,
            "a lock of readers and writers": self.ACQUIRE.startswith("RWLOCK"),
        }
        return next((what for what, is_asked in beyond.items() if is_asked), None)

    def _not_in_the_fallback(self, what: str) -> ModuleMissingError:
        return ModuleMissingError(f"{what} is not available in the fallback: {MODULE_MISSING}")

    async def _has_no_module(self) -> bool:
        command = ("LOCK.RELEASE", self.name, os.urandom(16).hex())
        (reply,) = await self._send(command)
        if isinstance(reply, Exception) and kind_of(reply) is not Kind.FINAL:
            raise reply
        return isinstance(reply, Exception) and is_unknown_command(reply, command[0])
