"""Sends to servers by redis-py or valkey-py. Nothing else knows how these libraries do it.

What a lock sends does not depend on the pool of the user's client: threads have connections of their own, tasks use
the pool's as long as it gives one at once.
"""

import asyncio
import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from .libraries import INSTALLED
from .replies import Kind, kind_of
from .steps import IMPATIENCE, AsyncMutex, Mutex, Steps, beside, finish, go_on, run, run_async

# For how many seconds a connection may be silent that the user's client would wait for without end.
DEFAULT_TIMEOUT = 5.0
SILENT = "the server has not answered in time"
# What a pool says that has no connection left.
NO_CONNECTION = ("Too many connections", "No connection available.")

Command = tuple[Any, ...]


# Return the first key of a command.
def key_of(command: Command) -> Any:
    return command[{"LOCK.MACQUIRE": 2, "EVAL": 3}.get(command[0], 1)]


# Return the library of a class, or of a pool's where a client only behaves like one, and whether it is for asyncio.
@functools.cache
def _kind(*classes: type) -> tuple[str | None, bool]:
    modules = [base.__module__.split(".") for cls in classes for base in cls.__mro__]
    name = next((module[0] for module in modules if module[0] in INSTALLED), None)
    return name, any(module[:2] == [name, "asyncio"] for module in modules)


def kind_of_client(client: Any) -> tuple[str | None, bool]:
    return _kind(client.__class__, getattr(client, "connection_pool", client).__class__)


# Return for how long a connection may be silent by the library's defaults.
@functools.cache
def _default_timeout(package: str) -> Any:
    return import_module(f"{package}.connection").Connection().socket_timeout


def is_of_asyncio(client: Any) -> bool:
    return kind_of_client(client)[1]


# What both kinds of clients have in common.
class Driver:
    is_async: bool
    _of_client: "ClassVar[WeakKeyDictionary[Any, Any]]" = WeakKeyDictionary()
    # Cut a connection.
    _cut: Callable[[Any], Any]

    # Return the driver of a client. Raise TypeError when the client is sync and the lock is not, or the reverse.
    # All locks of a client share its driver, in asyncio those of one loop.
    @classmethod
    def of(cls, client: Any) -> Any:
        if isinstance(found := cls._of_client.get(client), cls):
            return found
        library, of_asyncio = kind_of_client(client)
        if library is None:
            raise TypeError(f"{client!r} is no client of redis-py or valkey-py, or neither is installed")
        if of_asyncio != cls.is_async:
            other, right = ("sync", "redis_lock_client") if cls.is_async else ("asyncio", "redis_lock_client.asyncio")
            raise TypeError(f"the client is {'a' if cls.is_async else 'an'} {other} one: its locks are in {right}")
        return cls._of_client.setdefault(client, cls(client, library))

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        self.library = library
        self.errors = errors = import_module(f"{library}.exceptions")
        self.error = tuple(getattr(errors, library.capitalize() + what) for what in ("Error", "ClusterException"))
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
        settings = {"socket_timeout": _default_timeout(self._package)} | getattr(owner, "connection_kwargs", {})
        self.socket_timeout: float | None = settings["socket_timeout"]
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

    # Return what its error means, None when it has said nothing.
    def kind_of(self, error: Exception) -> Kind | None:
        return kind_of(error) if self.is_answer(error) else None

    # Return a connection beside a pool, or beside that of a node. It tries once, and waits for no server without end.
    def connection_beside(self, pool: Any, timeout: float | None = None, **more: Any) -> Any:
        # Those are about the pool.
        kwargs = {name: value for name, value in pool.connection_kwargs.items() if "maint_notifications" not in name}
        connection = pool.connection_class(**{**kwargs, **more, "health_check_interval": 0})
        no_backoff = import_module(f"{self.library}.backoff").NoBackoff()
        connection.retry = import_module(f"{self._package}.retry").Retry(no_backoff, 0)
        for name in ("socket_timeout", "socket_connect_timeout"):
            setattr(connection, name, timeout or getattr(connection, name, None) or DEFAULT_TIMEOUT)
        return connection

    # Return a connection of the pool, in asyncio what leads to it. valkey-py wants a name.
    def _of_pool(self, pool: Any) -> Any:
        return pool.get_connection(*(("_",) if self.library == "valkey" else ()))

    # Return whether a pool has no connection left. Not all have a class for this.
    def _is_exhausted(self, error: Exception) -> bool:
        return isinstance(error, self.errors.MaxConnectionsError) or str(error) in NO_CONNECTION

    # Return the replies that come over a connection, and what the server answered as an error.
    def _exchange(
        self, connection: Any, give: Any, commands: Sequence[Command], decodes: bool, within: float | None = None
    ) -> Steps[list[Any]]:
        try:
            if not getattr(connection, "is_connected", False):
                yield connection.connect()
            yield connection.send_packed_command(connection.pack_commands(commands))
            replies: list[Any] = []
            for _ in commands:
                # For threads only: tasks have a timeout around it.
                if within is not None and not connection.can_read(timeout=within):
                    raise self.errors.TimeoutError(SILENT)
                try:
                    replies.append((yield connection.read_response(disable_decoding=not decodes)))
                except self._answers as error:
                    replies.append(error)
            return replies
        except BaseException:
            # A signal handler may raise at any time. The next command would read the reply to this one.
            yield self._cut(connection)
            raise
        finally:
            yield give(connection)

    # Let a cluster's client send it.
    def _route(self, client: Any, command: Command, decodes: bool) -> Steps[Any]:
        try:
            return (yield client.execute_command(*command, **({} if decodes else {"NEVER_DECODE": True})))
        except self.error as error:
            if self.is_answer(error):
                return error
            if "doesn't exist in" in str(error):
                # It asks its server for what commands it knows.
                return self.errors.ResponseError(str(error))
            raise


# Sends by threads.
class SyncDriver(Driver):
    is_async = False
    mutex = Mutex
    sleep = staticmethod(time.sleep)

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        super().__init__(client, library)
        # Those that nobody uses at the moment, by process, for a child has its parent's, and by node.
        self._idle: dict[tuple[int, str], list[Any]] = {}

    # Do it, here or in a thread that may go on by itself after `IMPATIENCE`.
    @staticmethod
    def finish(make: Callable[[], Steps[None]], may_go_on: bool = False) -> None:
        def work() -> None:
            with contextlib.suppress(Exception):
                run(make())

        if may_go_on:
            beside(work, "release", IMPATIENCE)
        else:
            run(make())

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # In a cluster all the commands of a call are for one node.
    # With `binds` the hold lasts as long as the connection: it is one of the user's pool, which closes it.
    # With `decodes` the replies are as the client would have them. In a `hurry` each step takes so long at most.
    def send(self, client: Any, commands: Sequence[Command], within: float | None = None, **how: Any) -> list[Any]:
        if not self.is_cluster:
            return self._send_to("", self.pool, commands, within, **how)
        key, decodes = key_of(commands[0]), how.get("decodes", False)
        try:
            node = client.get_node_from_key(key)
            replies = self._send_to(node.name, self._pool_of(client, node), commands, within, **how)
        except self.error as error:
            # Let the client find out who has the slot now. It changes nothing.
            if self.socket_timeout or not isinstance(error, self.errors.TimeoutError):
                run(self._route(client, ("LOCK.RELEASE", key, os.urandom(16).hex()), False))
            raise
        # An error that says where the slot is, or that this node does not know: the client follows it, or looks anew.
        elsewhere = self.errors.AskError, self.errors.ClusterDownError
        return [
            run(self._route(client, command, decodes)) if isinstance(reply, elsewhere) else reply
            for command, reply in zip(commands, replies, strict=True)
        ]

    def _pool_of(self, client: Any, node: Any) -> Any:
        return getattr(client, f"get_{self.library}_connection")(node).connection_pool

    def _route(self, client: Any, command: Command, decodes: bool) -> Steps[Any]:
        try:
            return (yield from super()._route(client, command, decodes))
        except self.error:
            raise
        except BaseException:
            # Between sending and reading the libraries close nothing: the user's next command would read our reply.
            for node in client.get_nodes():
                self._pool_of(client, node).disconnect(inuse_connections=False)
            raise

    def _send_to(self, node: str, pool: Any, commands: Sequence[Command], within: Any, **how: Any) -> list[Any]:
        # The user's client may wait for a silent server without end.
        within = how.get("hurry") or within or (None if self.socket_timeout else DEFAULT_TIMEOUT)
        connection, give = self._take(node, pool, within, **how)
        return run(self._exchange(connection, give, commands, how.get("decodes", False), within))

    def _take(self, node: str, pool: Any, within: float | None, **how: Any) -> tuple[Any, Callable[[Any], Any]]:
        if hurry := how.get("hurry"):
            return self.connection_beside(pool, hurry), self._cut
        if how.get("binds") and not self._waits:
            # A pool connects by the client's settings, which may be silent for minutes: a server must be there.
            self._send_to(node, pool, [("PING",)], within)
            try:
                return self._of_pool(pool), pool.release
            except self.errors.ConnectionError as error:
                if not self._is_exhausted(error):
                    raise
        idle = self._idle.setdefault((os.getpid(), node), [])
        try:
            connection = idle.pop()
        except IndexError:
            return self.connection_beside(pool), idle.append
        # The server may have closed it, or what it said was of interest to nobody.
        with contextlib.suppress(self.errors.ConnectionError, OSError):
            if not connection.can_read():
                return connection, idle.append
        connection.disconnect()
        return connection, idle.append

    def _cut(self, connection: Any) -> None:
        connection.disconnect()


# Sends by tasks.
class AsyncDriver(Driver):
    is_async = True
    mutex = AsyncMutex
    finish = staticmethod(finish)
    sleep = staticmethod(asyncio.sleep)

    # Use `of`.
    def __init__(self, client: Any, library: str) -> None:
        super().__init__(client, library)
        # Those beside the pool that holds with linger are bound to, by loop.
        self._bound: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        self._finding: asyncio.Task[Any] | None = None

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # What `may_wait` so many seconds takes its turn at the pool; all else goes beside one that has no connection left.
    async def send(
        self, client: Any, commands: Sequence[Command], within: float | None = None, **how: Any
    ) -> list[Any]:
        hurry, decodes = how.get("hurry"), how.get("decodes", False)
        # A cluster's client has a time of its own, and asks again by itself.
        within = hurry or within or (None if self.is_cluster else self.socket_timeout or DEFAULT_TIMEOUT)
        task: Any = asyncio.current_task()
        cancelled_before = task.cancelling()
        try:
            if self.is_cluster:
                async with asyncio.timeout(within):
                    replies = [await run_async(self._route(client, command, decodes)) for command in commands]
            else:
                # To connect takes several ways. A pool that lets its callers wait does so until their time is over.
                limit = hurry or 2 * min(within or math.inf, self.socket_timeout or DEFAULT_TIMEOUT)
                waits = how.get("may_wait") if self._waits else None
                # Two limits: one that is just over cannot be moved, and the connection would be lost to its pool.
                async with asyncio.timeout(limit if waits is None else max(waits, within or limit)):
                    connection, give = await self._take(**how)
                async with asyncio.timeout(within):
                    replies = await run_async(self._exchange(connection, give, commands, decodes))
        except TimeoutError:
            if self.is_cluster:
                # The client had no time left to find out who has taken over from a node that hangs.
                self.find(client, key_of(commands[0]))
            raise self.errors.TimeoutError(SILENT) from None
        # Before Python 3.12 asyncio.wait_for, by which the libraries send, may swallow a cancellation.
        if task.cancelling() > cancelled_before:
            raise asyncio.CancelledError
        return replies

    # Let a cluster's client find out where the slot of a key is now. One command, which changes nothing, is enough for
    # all that ask.
    def find(self, client: Any, key: Any) -> "asyncio.Task[Any]":
        if self._finding is None or self._finding.done():
            command = ("LOCK.RELEASE", key, os.urandom(16).hex())
            self._finding = go_on(run_async(self._route(client, command, False)))
        return self._finding

    async def _take(self, **how: Any) -> tuple[Any, Callable[[Any], Any]]:
        may_wait, hurry = "may_wait" in how, how.get("hurry")
        # In a hurry a new connection is behind the request that it is about: one of the pool's could overtake it.
        if not hurry and (may_wait or not self._waits):
            try:
                return await self._of_pool(self.pool), self.pool.release
            except self.errors.ConnectionError as error:
                if may_wait or not self._is_exhausted(error):
                    raise
        if hurry or not how.get("binds"):
            return self.connection_beside(self.pool, hurry), self._cut
        bound = self._bound.setdefault(asyncio.get_running_loop(), [])
        return bound.pop() if bound else self.connection_beside(self.pool), self._keep

    async def _keep(self, connection: Any) -> None:
        self._bound[asyncio.get_running_loop()].append(connection)

    def _route(self, client: Any, command: Command, decodes: bool) -> Steps[Any]:
        try:
            return (yield from super()._route(client, command, decodes))
        except self.errors.ConnectionError as error:
            if not self._is_exhausted(error):
                raise
        node = client.get_node_from_key(key_of(command))
        return (yield from self._exchange(self.connection_beside(node), self._cut, [command], decodes))[0]

    async def _cut(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)
