"""Many tasks of one client that wait over two connections: one hears of the grants, the other carries the commands."""

import asyncio
import contextlib
import itertools
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from .driver import DEFAULT_TIMEOUT, SILENT, AsyncDriver, Command
from .replies import Kind
from .steps import go_on

# How long a request waits in the server, and after how long it is made anew. So the places of a process that died go
# together, not one grace after the other, and a lost message is found.
NOTIFY_MS = 30_000
ASK_AGAIN = 20.0
# How many commands go out at once, so that other tasks have their turn, and how many of a cluster.
BATCH = 256
CLUSTER_BATCH = 16
# How long the connection that hears stays when nobody waits.
IDLE = 1.0
# How long a token that has given up is known. A request of it that was late in the network may be granted yet.
GIVEN_UP = 60.0
CLOSED = "the subscription was closed"


# Carries the commands of many tasks over one connection, in the order in which they came.
class Line:
    # Nothing is sent yet.
    def __init__(self, driver: AsyncDriver, client: Any) -> None:
        self._driver = driver
        self._client = client
        self._queue: deque[tuple[Command, asyncio.Future[Any]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    # Return the replies, and the errors that the server answered. Raise for a lost connection.
    # What is not under way yet when the caller is cancelled is not sent.
    async def send(self, commands: Sequence[Command]) -> list[Any]:
        queued = [(command, _future()) for command in commands]
        self._queue.extend(queued)
        if self._sending is None or self._sending.done():
            self._sending = go_on(self._send())
        return await asyncio.gather(*(reply for _, reply in queued))

    async def _send(self) -> None:
        batch: list[tuple[Command, asyncio.Future[Any]]] = []
        most = CLUSTER_BATCH if self._driver.is_cluster else BATCH
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
                batch = [(command, reply) for command, reply in batch if not reply.done()]
                answers = await self._answers([command for command, _ in batch])
                for (_, reply), answer in zip(batch, answers, strict=True):
                    _settle(reply, answer, isinstance(answer, Exception) and not self._driver.is_answer(answer))
        except BaseException:
            # The loop may end. Those that were queued must not wait for this task.
            for _, reply in (*batch, *self._queue):
                _settle(reply, self._driver.errors.ConnectionError(CLOSED), is_error=True)
            self._queue.clear()
            raise

    async def _answers(self, commands: list[Command]) -> list[Any]:
        if self._driver.is_cluster:
            within = None if self._driver.socket_timeout else DEFAULT_TIMEOUT
            sends = [self._driver.send(self._client, [command], within) for command in commands]
            each = await asyncio.gather(*sends, return_exceptions=True)
            return [answer if isinstance(answer, BaseException) else answer[0] for answer in each]
        try:
            return await self._driver.send(self._client, commands, binds=True) if commands else []
        except Exception as error:
            return [error] * len(commands)


# One connection that has subscribed to channels of one server.
class Subscriber:
    # Connect.
    def __init__(self, listeners: "Listeners", connection: Any, subscribe: str) -> None:
        self.is_lost = False
        self._errors = listeners.driver.errors
        self._listeners = listeners
        self.connection = connection
        self._subscribe = subscribe
        # Silent for so long, the server is asked whether it is still there.
        self._pulse = listeners.driver.socket_timeout or DEFAULT_TIMEOUT
        self._connected = _future()
        # By channel: whether the server has confirmed it.
        self._channels: dict[bytes, asyncio.Future[None]] = {}
        self._listening = asyncio.create_task(self._listen())

    # Return when the server has confirmed the channel. Raise when it refuses, or is lost.
    async def subscribe(self, channel: bytes) -> None:
        if channel not in self._channels:
            self._channels[channel] = _future()
            # Not sent by this task: it would come behind those that only wait, and may be cancelled.
            go_on(self._send(channel))
        await asyncio.shield(self._channels[channel])

    # Close the connection. All who wait are told that it is lost.
    def close(self) -> None:
        self._lose(self._errors.ConnectionError(CLOSED))
        self._listening.cancel()

    def _lose(self, reason: Exception) -> None:
        if not self.is_lost:
            self.is_lost = True
            for future in (self._connected, *self._channels.values()):
                _settle(future, reason, is_error=True)
            self._listeners.lost(self)

    async def _send(self, channel: bytes) -> None:
        await asyncio.shield(self._connected)
        # If this fails, what listens finds out, too.
        await self.connection.send_command(self._subscribe, channel)

    async def _listen(self) -> None:
        try:
            # A server that hangs accepts a connection, and says nothing.
            async with asyncio.timeout(self._pulse):
                await self.connection.connect()
            self._connected.set_result(None)
            is_quiet = False
            # Before Python 3.12 a cancellation may be swallowed.
            while not self.is_lost:
                # That it refuses a channel ends all of them.
                message = await self.connection.read_response(timeout=self._pulse)
                if message is not None:
                    self._heard(message)
                elif is_quiet or not self._channels:
                    raise self._errors.ConnectionError("the server of the subscription does not answer")
                else:
                    # To subscribe again changes nothing, and needs no other right.
                    await self._send(next(iter(self._channels)))
                is_quiet = message is None
        except Exception as error:
            self._lose(self._errors.TimeoutError(SILENT) if isinstance(error, TimeoutError) else error)
        finally:
            self._lose(self._errors.ConnectionError(CLOSED))
            with contextlib.suppress(Exception):
                await self.connection.disconnect(nowait=True)

    def _heard(self, message: list[Any]) -> None:
        kind, channel = message[:2]
        if kind.endswith(b"message"):
            self._listeners.heard(message[2])
        elif kind.endswith(b"unsubscribe"):
            # The slot has left this server.
            raise self._errors.ConnectionError("the server has ended the subscription")
        else:
            _settle(self._channels[channel], None)


# A task that waits for its grant.
class Listener:
    # Use `Listeners.listen`.
    def __init__(self, listeners: "Listeners", key: bytes, trusts_messages: bool) -> None:
        self.subscriber: Any = None
        # If not, a fence that it hears of may be that of a grant which was not made, or of another hold.
        self.trusts_messages = trusts_messages
        self.is_granted = False
        self._listeners = listeners
        self._key = key
        self._heard: asyncio.Future[int | None] = _future()

    # Return the channel that hears of the key's grants from now on: subscribe first, then ask.
    async def subscribed(self) -> bytes:
        channel, self.subscriber = await self._listeners.subscribed(self._key)
        self._heard = _future()
        if self.subscriber.is_lost:
            self.tell(None)
        return channel

    # Return the fence of the grant, or None when the time is over or it has to be asked again.
    async def hear(self, left_ms: float) -> int | None:
        address, connection = self._listeners.primary_address(self._key), self.subscriber.connection
        if address not in (None, (connection.host, connection.port)):
            # The client's commands go to another server now: all who listen here are to ask again.
            self.subscriber.close()
        # Unlike wait_for, this swallows no cancellation.
        await asyncio.wait([self._heard], timeout=min(left_ms / 1000, ASK_AGAIN))
        return self._heard.result() if self._heard.done() else None

    # Wake the task: it has this fence, or has to ask what has become of its request. With an error its wait is over.
    def tell(self, fence: int | None, error: Exception | None = None) -> None:
        _settle(self._heard, error or fence, is_error=error is not None)


# All the waiting tasks of a client.
class Listeners:
    _all: ClassVar[weakref.WeakKeyDictionary[Any, "Listeners"]] = weakref.WeakKeyDictionary()

    # Return those of a client in the loop that runs.
    @classmethod
    def of(cls, driver: AsyncDriver, client: Any) -> "Listeners":
        loop = asyncio.get_running_loop()
        found = cls._all.get(client)
        if found is None or found._loop is not loop:
            found = cls._all[client] = cls(driver, client, loop)
        return found

    # Use `Listeners.of`.
    def __init__(self, driver: AsyncDriver, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        # The tasks that wait keep the client alive, not this.
        self._client = weakref.proxy(client)
        self.driver = driver
        self.line = Line(driver, self._client)
        self._loop = loop
        self._name = uuid4().hex
        self._waiting: dict[tuple[bytes, bytes], set[Listener]] = {}
        # All the keys that were asked for.
        self._given_up: dict[tuple[bytes, bytes], Sequence[bytes]] = {}
        # By the name of the node, "" outside clusters.
        self._subscribers: dict[str, Subscriber] = {}
        # By slot: a hash tag that lies in it. A key itself may have braces that make it none.
        self._tags: dict[int, int] = {}
        self._numbers = itertools.count()
        self._idle: asyncio.TimerHandle | None = None

    # Pass on to the listener what is heard of its keys and token, until the context ends.
    @contextlib.contextmanager
    def listen(self, keys: Sequence[bytes], token: bytes, is_own: bool) -> Iterator[Listener]:
        # The messages name the first key.
        key = keys[0]
        # A token that was passed may have been granted before, or waits in several tasks. In a cluster a replica, too,
        # passes on the messages of its primary, which makes no grant that nobody hears of at the primary itself.
        listener = Listener(self, key, is_own and not self.driver.is_cluster)
        self._given_up.pop((key, token), None)
        self._waiting.setdefault((key, token), set()).add(listener)
        if self._idle:
            self._idle.cancel()
        try:
            yield listener
        finally:
            listeners = self._waiting[key, token]
            listeners.discard(listener)
            if not listeners:
                del self._waiting[key, token]
                if not listener.is_granted:
                    self._given_up[key, token] = keys
                    self._loop.call_later(GIVEN_UP, self._given_up.pop, (key, token), None)
            if not self._waiting:
                self._idle = self._loop.call_later(IDLE, self._close)

    # Return where the client has found the primary of a key last, None when it has one server only.
    def primary_address(self, key: bytes) -> tuple[str, int] | None:
        if self.driver.is_cluster:
            node = self._client.get_node_from_key(key)
            return node.host, node.port
        return getattr(self.driver.pool, "master_address", None)

    # Subscribe to the channel for a key, if need be, at the server that has the key.
    async def subscribed(self, key: bytes) -> tuple[bytes, Subscriber]:
        if not self.driver.is_cluster:
            subscriber = self._subscriber("", self.driver.pool, "SUBSCRIBE")
            channel = f"redis-lock:{self._name}".encode()
            await subscriber.subscribe(channel)
            return channel, subscriber
        slot = self._client.keyslot(key)
        while slot not in self._tags:
            number = next(self._numbers)
            self._tags.setdefault(self._client.keyslot(str(number)), number)
        channel = f"redis-lock:{{{self._tags[slot]}}}:{self._name}".encode()
        try:
            await self._client.initialize()
            node = self._client.get_node_from_key(key)
            if (known := self._subscribers.get(node.name)) and known.is_lost:
                # The node may hang: another one that has taken over is found sooner than its silence ends.
                await self._find(key)
                node = self._client.get_node_from_key(key)
            subscriber = self._subscriber(node.name, node, "SSUBSCRIBE")
            await subscriber.subscribe(channel)
        except self.driver.error as error:
            if self.driver.kind_of(error) is Kind.FINAL:
                raise
            await self._find(key)
            raise self.driver.errors.ConnectionError(f"no subscription: {error}") from error
        return channel, subscriber

    async def _find(self, key: bytes) -> None:
        await asyncio.wait([self.driver.find(self._client, key)], timeout=DEFAULT_TIMEOUT)

    # Return the subscriber to a node, whose connections are those of this pool.
    def _subscriber(self, node: str, pool: Any, subscribe: str) -> Subscriber:
        found = self._subscribers.get(node)
        if found is None or found.is_lost:
            # In RESP2 messages and replies come in one stream.
            connection = self.driver.connection_beside(pool, protocol=2, decode_responses=False)
            found = self._subscribers[node] = Subscriber(self, connection, subscribe)
        return found

    # Pass on a message of the module.
    def heard(self, message: bytes) -> None:
        try:
            event, fence_text, length, rest = message.split(b" ", 3)
            fence, key, token = int(fence_text), rest[: int(length)], rest[int(length) + 1 :]
        except ValueError:
            # Not from the module: others may publish here, too.
            return
        waiting = self._waiting.get((key, token), ())
        # As the reply to a request that blocks.
        said = "CANCELLED the wait was ended by LOCK.CANCEL"
        error = self.driver.errors.ResponseError(said) if event == b"cancelled" else None
        for listener in waiting:
            listener.tell(fence if event == b"granted" else None, error)
            if event == b"tryagain" and listener.subscriber:
                # The server handed its role or the slot on: listen where the keys are now.
                listener.subscriber.close()
        if event == b"granted" and not waiting and (keys := self._given_up.get((key, token))):
            # Release what nobody wants any more. That the client is gone, for instance, is of no interest.
            go_on(self.line.send([("LOCK.RELEASE", each, token) for each in keys]))

    # Let all who hear by this connection ask what has become of their requests.
    def lost(self, subscriber: Subscriber) -> None:
        for listeners in self._waiting.values():
            for listener in listeners:
                if listener.subscriber is subscriber:
                    listener.tell(None)

    def _close(self) -> None:
        for subscriber in self._subscribers.values():
            subscriber.close()
        self._subscribers.clear()


# Return a future whose error nobody has to look at.
def _future() -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


# Give a future its result or error, unless it has one.
def _settle(future: "asyncio.Future[Any]", result: Any, is_error: bool = False) -> None:
    if not future.done():
        if is_error:
            future.set_exception(result)
        else:
            future.set_result(result)
