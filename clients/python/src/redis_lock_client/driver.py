"""Sends to servers by redis-py or valkey-py. Nothing else knows how these libraries do it.

What a lock sends does not depend on the pool of the user's client: threads have connections of their own, tasks use
the pool's as long as it gives one at once.
"""

import asyncio
import contextlib
import functools
import inspect
import math
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from .libraries import INSTALLED
from .steps import AsyncMutex, Mutex, run, run_async

# For how many seconds a connection may be silent that the user's client would wait for without end.
DEFAULT_TIMEOUT = 5.0
SILENT = "the server has not answered in time"
# What a pool says that has no connection left.
NO_CONNECTION = ("Too many connections", "No connection available.")

Command = tuple[Any, ...]


# Return the first key of a command.
def key_of(command: Command) -> Any:
    return command[{"LOCK.MACQUIRE": 2, "EVAL": 3}.get(command[0], 1)]


# Return a client's library, None when it is of neither, and whether it is one for asyncio.
@functools.cache
def _kind(cls: type) -> tuple[str | None, bool]:
    modules = [base.__module__.split(".") for base in cls.__mro__]
    name = next((module[0] for module in modules if module[0] in INSTALLED), None)
    if name is None:
        return None, inspect.iscoroutinefunction(getattr(cls, "execute_command", None))
    return name, any(module[:2] == [name, "asyncio"] for module in modules)


def is_of_asyncio(client: Any) -> bool:
    return _kind(client.__class__)[1]


# Return the parameter of a connection, of its class or of a base, or None.
@functools.cache
def _parameter(connection_class: type, name: str) -> inspect.Parameter | None:
    inits = (vars(cls)["__init__"] for cls in connection_class.__mro__ if "__init__" in vars(cls))
    return next(filter(None, (inspect.signature(init).parameters.get(name) for init in inits)), None)


@functools.cache
def _needs_a_name(get_connection: Any) -> bool:
    parameters = inspect.signature(get_connection).parameters
    return "command_name" in parameters and parameters["command_name"].default is inspect.Parameter.empty


# Return a connection of a pool, or of one for asyncio what leads to it. valkey-py wants a name.
def get_connection(pool: Any) -> Any:
    return pool.get_connection(*(("_",) if _needs_a_name(type(pool).get_connection) else ()))


# What both kinds of clients have in common.
class Driver:
    is_async: bool
    _of_client: "WeakKeyDictionary[Any, Any]"

    # Return the driver of a client. Raise TypeError when the client is sync and the lock is not, or the reverse.
    # All locks of a client share its driver, in asyncio those of one loop.
    @classmethod
    def of(cls, client: Any) -> Any:
        if is_of_asyncio(client) != cls.is_async:
            other, right = ("sync", "redis_lock_client") if cls.is_async else ("asyncio", "redis_lock_client.asyncio")
            raise TypeError(f"the client is {'a' if cls.is_async else 'an'} {other} one: its locks are in {right}")
        found = cls._of_client.get(client)
        if found is None:
            # A client that only behaves like one has a pool of a library.
            candidates = (client, getattr(client, "connection_pool", client))
            names = filter(None, (_kind(each.__class__)[0] for each in candidates))
            if (name := next(names, next(iter(INSTALLED), None))) is None:
                raise ImportError('no client library is installed: pip install "redis>=6.4", or valkey')
            found = cls._of_client.setdefault(client, cls(client, name))
        return found

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        self.library = library
        self.errors = errors = import_module(f"{library}.exceptions")
        self.error: Any = (
            getattr(errors, f"{library.capitalize()}Error"),
            getattr(errors, f"{library.capitalize()}ClusterException"),
        )
        # The server's own words, some of which the libraries count among the lost connections.
        self._answers: Any = (errors.ResponseError, errors.BusyLoadingError, errors.AuthenticationError)
        # Not the client itself, which would never be collected then.
        self.pool: Any = getattr(client, "connection_pool", None)
        self.is_cluster = hasattr(client, "nodes_manager")
        # Finds the server that takes over from one that failed.
        self.is_roaming = self.is_cluster or hasattr(self.pool, "sentinel_manager")
        # It lets its callers wait for a connection.
        self._waits = hasattr(self.pool, "timeout")
        self._package = f"{library}.asyncio" if self.is_async else library
        owner = self.pool or getattr(client, "nodes_manager", None)
        settings = getattr(owner, "connection_kwargs", {})
        cls = getattr(owner, "connection_class", None) or import_module(f"{self._package}.connection").Connection
        default = _parameter(cls, "socket_timeout")
        self.socket_timeout: float | None = settings.get("socket_timeout", default.default if default else None)
        # By client: what its locks have learned. See `fallback`.
        self.falls_back: bool | None = None
        # By name and token that was passed: as what the hold was taken last.
        self.converted: dict[tuple[Any, bytes], tuple[Any, ...]] = {}

    # Return what makes bytes of a token, a key or a value as the client sends it, and what it reads of bytes.
    def encoder(self, client: Any) -> Any:
        return (client if hasattr(client, "get_encoder") else self.pool).get_encoder()

    # Return whether the server has said it, and did not just stay silent.
    def is_answer(self, error: BaseException) -> bool:
        return isinstance(error, self._answers) or str(error).startswith("TTL exhausted")

    # Return whether the pool has no connection left. Not all pools have a class for this.
    def is_exhausted(self, error: BaseException) -> bool:
        return isinstance(error, self.errors.MaxConnectionsError) or str(error) in NO_CONNECTION

    # Return the error of a reply that has not come in time.
    def silent(self) -> Exception:
        error: Exception = self.errors.TimeoutError(SILENT)
        return error

    # Return a connection beside the pool: it tries once, and waits for no server without end.
    def connection_beside(self, cls: Any, kwargs: Any, timeout: float | None = None, **more: Any) -> Any:
        retry = import_module(f"{self._package}.retry").Retry(import_module(f"{self.library}.backoff").NoBackoff(), 0)
        settings = {name: value for name, value in kwargs.items() if "maint_notifications" not in name}
        settings |= {"retry": retry, "health_check_interval": 0, **more}
        for name in ("socket_timeout", "socket_connect_timeout"):
            if _parameter(cls, name):
                settings[name] = timeout or settings.get(name) or self.socket_timeout or DEFAULT_TIMEOUT
        if _parameter(cls, "maint_notifications_config"):
            settings["maint_notifications_config"] = None
        return cls(**settings)

    # Return the error of a server for one of a cluster's client, which sends no command that its server lacks.
    def refused(self, error: Exception) -> Exception | None:
        if self.is_answer(error):
            return error
        refused: Exception | None = self.errors.ResponseError(str(error)) if "doesn't exist in" in str(error) else None
        return refused


# Sends by threads.
class SyncDriver(Driver):
    is_async = False
    _of_client = WeakKeyDictionary()
    mutex = Mutex
    run = staticmethod(run)
    sleep = staticmethod(time.sleep)

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        super().__init__(client, library)
        # Those that nobody uses at the moment, by process, for a child has its parent's, and by node.
        self._idle: dict[tuple[int, str], list[Any]] = {}

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # In a cluster all the commands of a call are for one node.
    # With `binds` the hold lasts as long as the connection: it is one of the user's pool, which closes it.
    # With `decodes` the replies are as the client would have them. In a `hurry` each step takes so long at most.
    def send(self, client: Any, commands: Sequence[Command], within: float | None = None, **how: Any) -> list[Any]:
        if not self.is_cluster:
            return self._exchange("", self.pool, commands, within, **how)
        key, decodes = key_of(commands[0]), how.get("decodes", False)
        try:
            node = client.get_node_from_key(key)
            pool = getattr(client, f"get_{self.library}_connection")(node).connection_pool
            replies = self._exchange(node.name, pool, commands, within, **how)
        except self.error as error:
            # Let the client find out who has the slot now. It changes nothing.
            if self.socket_timeout or not isinstance(error, self.errors.TimeoutError):
                self._route(client, ("LOCK.RELEASE", key, os.urandom(16).hex()), False)
            raise
        # An error that says where the slot is: the client follows it.
        return [
            self._route(client, command, decodes) if isinstance(reply, self.errors.AskError) else reply
            for command, reply in zip(commands, replies, strict=True)
        ]

    def _exchange(
        self, node: str, pool: Any, commands: Sequence[Command], within: float | None, **how: Any
    ) -> list[Any]:
        # A pool may wait for a silent server without end.
        within = within or (None if self.socket_timeout else DEFAULT_TIMEOUT)
        connection, give = self._take(node, pool, **how)
        try:
            connection.connect()
            connection.send_packed_command(connection.pack_commands(commands))
            return [self._read(connection, within, not how.get("decodes")) for _ in commands]
        except BaseException:
            # A signal handler may raise at any time. The next command would read the reply to this one.
            connection.disconnect()
            raise
        finally:
            give(connection)

    def _take(self, node: str, pool: Any, **how: Any) -> tuple[Any, Callable[[Any], Any]]:
        if hurry := how.get("hurry"):
            beside = self.connection_beside(pool.connection_class, pool.connection_kwargs, hurry)
            return beside, lambda each: each.disconnect()
        if how.get("binds") and not self._waits:
            try:
                return get_connection(pool), pool.release
            except self.errors.ConnectionError as error:
                if not self.is_exhausted(error):
                    raise
        idle = self._idle.setdefault((os.getpid(), node), [])
        try:
            connection = idle.pop()
        except IndexError:
            return self.connection_beside(pool.connection_class, pool.connection_kwargs), idle.append
        # The server may have closed it, or what it said was of interest to nobody.
        with contextlib.suppress(self.errors.ConnectionError, OSError):
            if not connection.can_read():
                return connection, idle.append
        connection.disconnect()
        return connection, idle.append

    def _read(self, connection: Any, within: float | None, is_raw: bool) -> Any:
        if within is not None and not connection.can_read(timeout=within):
            raise self.silent()
        try:
            return connection.read_response(disable_decoding=is_raw)
        except self._answers as error:
            return error

    def _route(self, client: Any, command: Command, decodes: bool) -> Any:
        try:
            return client.execute_command(*command, **({} if decodes else {"NEVER_DECODE": True}))
        except self.error as error:
            if (answer := self.refused(error)) is None:
                raise
            return answer
        except BaseException:
            # The reply to an interrupted command is still to come.
            client.disconnect_connection_pools()
            raise


# Sends by tasks.
class AsyncDriver(Driver):
    is_async = True
    _of_client = WeakKeyDictionary()
    mutex = AsyncMutex
    run = staticmethod(run_async)
    sleep = staticmethod(asyncio.sleep)

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        super().__init__(client, library)
        # Those beside the pool that holds with linger are bound to, by loop.
        self._bound: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # What `may_wait` takes its turn at the pool; all else goes beside a pool that has no connection left.
    async def send(
        self, client: Any, commands: Sequence[Command], within: float | None = None, **how: Any
    ) -> list[Any]:
        hurry, decodes = how.get("hurry"), how.get("decodes", False)
        # A cluster's client has a time of its own, and asks again by itself.
        within = hurry or within or (None if self.is_cluster else self.socket_timeout or DEFAULT_TIMEOUT)
        task: Any = asyncio.current_task()
        cancelled_before = task.cancelling()
        # To connect takes several ways there and back, and a pool that lets its callers wait knows for how long.
        limit = hurry or 2 * min(within or math.inf, self.socket_timeout or DEFAULT_TIMEOUT)
        waits = self._waits and not hurry and how.get("may_wait")
        try:
            async with asyncio.timeout(within if self.is_cluster else None if waits else limit) as clock:
                if self.is_cluster:
                    replies = [await self._route(client, command, decodes) for command in commands]
                else:
                    connection, give = await self._take(**how)
                    replies = await self._exchange(connection, give, commands, decodes, clock, within)
        except TimeoutError:
            raise self.silent() from None
        # Before Python 3.12 asyncio.wait_for, by which the libraries send, may swallow a cancellation.
        if task.cancelling() > cancelled_before:
            raise asyncio.CancelledError
        return replies

    async def _take(self, **how: Any) -> tuple[Any, Callable[[Any], Awaitable[Any]]]:
        # A new connection is behind the request that it is about: one of the pool's could overtake it.
        if not how.get("hurry") and (how.get("may_wait") or not self._waits):
            try:
                return await get_connection(self.pool), self.pool.release
            except self.errors.ConnectionError as error:
                if not self.is_exhausted(error) or how.get("may_wait"):
                    raise
        bound = self._bound.setdefault(asyncio.get_running_loop(), [])
        is_bound = how.get("binds") and not how.get("hurry")
        if is_bound and bound:
            return bound.pop(), self._keep
        connection = self.connection_beside(self.pool.connection_class, self.pool.connection_kwargs)
        return connection, self._keep if is_bound else _close

    async def _keep(self, connection: Any) -> None:
        self._bound[asyncio.get_running_loop()].append(connection)

    async def _exchange(
        self,
        connection: Any,
        give: Callable[[Any], Awaitable[Any]],
        commands: Sequence[Command],
        decodes: bool,
        clock: asyncio.Timeout | None = None,
        within: float | None = None,
    ) -> list[Any]:
        try:
            if not connection.is_connected:
                await connection.connect()
            if clock and within:
                clock.reschedule(asyncio.get_running_loop().time() + within)
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await self._read(connection, not decodes) for _ in commands]
        except BaseException:
            await _close(connection)
            raise
        finally:
            await give(connection)

    async def _read(self, connection: Any, is_raw: bool) -> Any:
        try:
            return await connection.read_response(disable_decoding=is_raw)
        except self._answers as error:
            return error

    async def _route(self, client: Any, command: Command, decodes: bool) -> Any:
        try:
            return await client.execute_command(*command, **({} if decodes else {"NEVER_DECODE": True}))
        except self.error as error:
            if self.is_exhausted(error):
                await client.initialize()
                node = client.get_node_from_key(key_of(command))
                connection = self.connection_beside(node.connection_class, node.connection_kwargs)
                return (await self._exchange(connection, _close, [command], decodes))[0]
            if (answer := self.refused(error)) is None:
                raise
            return answer


async def _close(connection: Any) -> None:
    await connection.disconnect(nowait=True)
