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
from binascii import crc_hqx
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from .lease import AsyncMutex, Mutex
from .libraries import INSTALLED

# For how many seconds a connection may be silent that the user's client would wait for without end.
DEFAULT_TIMEOUT = 5.0
SLOTS = 16384
SILENT = "the server has not answered in time"
# What a pool says that has no connection left.
NO_CONNECTION = ("Too many connections", "No connection available.")

Command = tuple[Any, ...]


# Return the slot of a key in a cluster.
def slot_of(name: bytes) -> int:
    _, brace, rest = name.partition(b"{")
    tag, end, _ = rest.partition(b"}")
    return crc_hqx(tag if brace and end and tag else name, 0) % SLOTS


_tags: dict[int, str] = {}
_tried = 0


# Return a hash tag that lies in a slot: a key itself may have braces that make it none.
def tag_of(slot: int) -> str:
    global _tried
    while slot not in _tags:
        _tags.setdefault(slot_of(b"%d" % _tried), str(_tried))
        _tried += 1
    return _tags[slot]


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


# Return the parameter of a connection, of its class or of a base, or None.
@functools.cache
def _parameter(connection_class: type, name: str) -> inspect.Parameter | None:
    inits = (vars(cls)["__init__"] for cls in connection_class.__mro__ if "__init__" in vars(cls))
    return next(filter(None, (inspect.signature(init).parameters.get(name) for init in inits)), None)


# What both kinds of clients have in common.
class Driver:
    is_async: bool
    _of_client: "WeakKeyDictionary[Any, Any]"

    # Return the driver of a client. Raise TypeError when the client is sync and the lock is not, or the reverse.
    # All locks of a client share its driver, in asyncio those of one loop.
    @classmethod
    def of(cls, client: Any) -> Any:
        name, of_asyncio = _kind(client.__class__)
        if of_asyncio != cls.is_async:
            other, right = ("sync", "redis_lock_client") if cls.is_async else ("asyncio", "redis_lock_client.asyncio")
            raise TypeError(f"the client is {'a' if cls.is_async else 'an'} {other} one: its locks are in {right}")
        found = cls._of_client.get(client)
        if found is None:
            # A client that only behaves like one has a pool of a library.
            name = name or _kind(getattr(client, "connection_pool", client).__class__)[0] or next(iter(INSTALLED), None)
            if name is None:
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

    # Return a token, a key or a value as the client sends it.
    def encode(self, client: Any, value: Any) -> bytes:
        encoded: bytes = self._encoder(client).encode(value)
        return encoded

    # Return what the client reads: text with its `decode_responses`.
    def decode(self, client: Any, value: bytes) -> Any:
        return self._encoder(client).decode(value)

    def _encoder(self, client: Any) -> Any:
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

    # Return the settings of a connection beside the pool: it tries once, and waits for no server without end.
    def settings(self, connection_class: Any, kwargs: Any, timeout: float | None = None) -> dict[str, Any]:
        retry = import_module(f"{self._package}.retry").Retry(import_module(f"{self.library}.backoff").NoBackoff(), 0)
        ours = {name: value for name, value in kwargs.items() if "maint_notifications" not in name}
        ours |= {"retry": retry, "health_check_interval": 0}
        for name in ("socket_timeout", "socket_connect_timeout"):
            if _parameter(connection_class, name):
                ours[name] = timeout or ours.get(name) or self.socket_timeout or DEFAULT_TIMEOUT
        if _parameter(connection_class, "maint_notifications_config"):
            ours["maint_notifications_config"] = None
        return ours

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

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        super().__init__(client, library)
        # Those that nobody uses at the moment, by node, and the process that opened them.
        self._idle: dict[str, list[Any]] = {}
        self._is_patient = self.socket_timeout is None
        self._pid = os.getpid()

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # With `binds` the hold lasts as long as the connection: it is one of the user's pool, which closes it.
    # With `decodes` the replies are as the client would have them. In a `hurry` each step takes so long at most.
    async def send(
        self, client: Any, commands: Sequence[Command], within: float | None = None, **how: Any
    ) -> list[Any]:
        if self.is_cluster:
            # Without a timeout the client would wait without end for a connection that has fallen silent.
            send = partial(self._send_beside, within=within or DEFAULT_TIMEOUT) if self._is_patient else self._route
            return [send(client, command, decodes=how.get("decodes", False)) for command in commands]
        if hurry := how.get("hurry"):
            return self._exchange(self._beside(self.pool, hurry), commands, None, lambda each: each.disconnect())
        if how.get("binds") and not self._waits:
            try:
                connection = get_connection(self.pool)
            except self.errors.ConnectionError as error:
                if not self.is_exhausted(error):
                    raise
            else:
                return self._exchange(connection, commands, within, self.pool.release, **how)
        idle = self._idle.setdefault("", [])
        return self._exchange(self._take(self.pool, idle), commands, within, idle.append, **how)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 -- no loop waits for it

    def _take(self, pool: Any, idle: list[Any]) -> Any:
        if self._pid != os.getpid():
            # They are the parent's.
            self._pid = os.getpid()
            for each in self._idle.values():
                each.clear()
        try:
            connection = idle.pop()
        except IndexError:
            return self._beside(pool)
        else:
            # The server has closed it, or what it said was of interest to nobody.
            with contextlib.suppress(self.errors.ConnectionError, OSError):
                if not connection.can_read():
                    return connection
            connection.disconnect()
        return connection

    def _beside(self, pool: Any, timeout: float | None = None) -> Any:
        return pool.connection_class(**self.settings(pool.connection_class, pool.connection_kwargs, timeout))

    def _exchange(
        self, connection: Any, commands: Sequence[Command], within: float | None, give: Callable[[Any], Any], **how: Any
    ) -> list[Any]:
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
            if self.is_exhausted(error):
                return self._send_beside(client, command, None, decodes)
            if (answer := self.refused(error)) is None:
                raise
            return answer
        except BaseException:
            # The reply to an interrupted command is still to come.
            for node in client.get_nodes():
                client.get_redis_connection(node).connection_pool.disconnect(inuse_connections=False)
            raise

    # Send to the node of the key, over a connection of our own.
    def _send_beside(self, client: Any, command: Command, within: float | None, decodes: bool) -> Any:
        node = client.get_node_from_key(key_of(command))
        pool = client.get_redis_connection(node).connection_pool
        idle = self._idle.setdefault(node.name, [])
        try:
            (reply,) = self._exchange(self._take(pool, idle), [command], within, idle.append, decodes=decodes)
        except self.errors.ConnectionError:
            # Let the client find out who has the slot now. It changes nothing.
            self._route(client, ("LOCK.RELEASE", key_of(command), os.urandom(16).hex()), False)
            raise
        return self._route(client, command, decodes) if isinstance(reply, self.errors.AskError) else reply


@functools.cache
def _needs_a_name(get_connection: Any) -> bool:
    parameters = inspect.signature(get_connection).parameters
    return "command_name" in parameters and parameters["command_name"].default is inspect.Parameter.empty


# Return a connection of a pool, or of one for asyncio what leads to it. valkey-py wants a name.
def get_connection(pool: Any) -> Any:
    return pool.get_connection(*(("_",) if _needs_a_name(type(pool).get_connection) else ()))


# Sends by tasks.
class AsyncDriver(Driver):
    is_async = True
    _of_client = WeakKeyDictionary()
    sleep = staticmethod(asyncio.sleep)
    mutex = AsyncMutex

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        super().__init__(client, library)
        # Those beside the pool that holds with linger are bound to.
        self._beside: list[Any] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # What `may_wait` takes its turn at the pool; all else goes beside a pool that has no connection left.
    async def send(
        self, client: Any, commands: Sequence[Command], within: float | None = None, **how: Any
    ) -> list[Any]:
        hurry = how.get("hurry")
        # A cluster's client has a time of its own, and asks again by itself.
        within = hurry or within or (None if self.is_cluster else self.socket_timeout or DEFAULT_TIMEOUT)
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        # To connect takes several ways there and back, and a pool that lets its callers wait knows for how long.
        limit = hurry or 2 * min(within or math.inf, self.socket_timeout or DEFAULT_TIMEOUT)
        waits = self.is_cluster or (self._waits and not hurry and how.get("may_wait"))
        try:
            async with asyncio.timeout(within if self.is_cluster else None if waits else limit) as clock:
                if self.is_cluster:
                    replies = [await self._route(client, command, how.get("decodes", False)) for command in commands]
                else:
                    connection, give = await self._take(**how)
                    try:
                        if not connection.is_connected:
                            await connection.connect()
                        clock.reschedule(within and asyncio.get_running_loop().time() + within)
                        await connection.send_packed_command(connection.pack_commands(commands))
                        replies = [await self._read(connection, not how.get("decodes")) for _ in commands]
                    except BaseException:
                        await connection.disconnect(nowait=True)
                        raise
                    finally:
                        await give(connection)
        except TimeoutError:
            raise self.silent() from None
        # Before Python 3.12 asyncio.wait_for, by which the libraries send, may swallow a cancellation.
        if task and task.cancelling() > cancelled_before:
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
        if how.get("binds") and not how.get("hurry"):
            return self._bound(), self._keep
        connection = self.connection_beside(self.pool.connection_class, self.pool.connection_kwargs)
        return connection, lambda each: each.disconnect(nowait=True)

    # Return a connection that is not of the pool.
    def connection_beside(self, connection_class: Any, kwargs: Any, **more: Any) -> Any:
        return connection_class(**{**self.settings(connection_class, kwargs), **more})

    def _bound(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._beside, self._loop = [], loop
        cls = self.pool.connection_class
        return self._beside.pop() if self._beside else self.connection_beside(cls, self.pool.connection_kwargs)

    async def _keep(self, connection: Any) -> None:
        self._beside.append(connection)

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
                try:
                    await connection.connect()
                    await connection.send_command(*command)
                    return await self._read(connection, not decodes)
                finally:
                    await connection.disconnect(nowait=True)
            if (answer := self.refused(error)) is None:
                raise
            return answer
