"""Many tasks of one client that wait over two connections: one hears of the grants, the other carries the commands."""

import asyncio
import contextlib
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from . import _protocol as protocol
from ._libraries import Library, setting

# How long a request waits in the server, and after how long it is made anew. So the places of a process that died go
# together, not one grace after the other, and a lost message is found.
NOTIFY_MS = 30_000
ASK_AGAIN = 20.0

# How many commands go out at once, so that other tasks have their turn.
BATCH = 256

# How long the connection that hears stays when nobody waits.
IDLE = 10.0

# How long a token that has given up is known. A request of it that was late in the network may be granted yet.
GIVEN_UP = 60.0

CLOSED = "the subscription was closed"


async def within(library: Library, seconds: float | None, answer: Awaitable[Any]) -> Any:
    """Return what is awaited. Raise the library's TimeoutError when that takes longer."""
    if seconds is None:
        return await answer
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise library.timeout_error(protocol.SILENT) from None


class Line:
    """Carries the commands of many tasks over one connection of the pool, in the order in which they came."""

    def __init__(self, library: Library, client: Any) -> None:
        """Nothing is sent yet."""
        self._library = library
        self._client = client
        # What goes over the line is answered at once. A client that never times out would wait for ever all the same.
        self.limit = protocol.LATE if protocol.socket_timeout(library, client, True) is None else None
        self._queue: deque[tuple[tuple[Any, ...], dict[str, Any], asyncio.Future[Any]]] = deque()
        # Of the command that came last.
        self._reply: asyncio.Future[Any] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._afterwards: set[asyncio.Task[None]] = set()

    async def execute(self, *args: Any, **options: Any) -> Any:
        """Return the reply to a command. It is sent also when the caller is cancelled meanwhile."""
        reply = self._queued(args, options)
        # A caller that is cancelled leaves the reply to `afterwards`.
        await asyncio.wait([reply])
        return reply.result()

    async def execute_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the replies to commands, and the errors. All are sent also when the caller is cancelled meanwhile."""
        replies = [self._queued(command, {}) for command in commands]
        await asyncio.wait(replies)
        return [reply.exception() or reply.result() for reply in replies]

    def _queued(self, args: tuple[Any, ...], options: dict[str, Any]) -> "asyncio.Future[Any]":
        self._reply = reply = _future()
        self._queue.append((args, options, reply))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return reply

    def within(self, answer: Awaitable[Any]) -> Awaitable[Any]:
        """Wait for what the server answers at once."""
        return within(self._library, self.limit, answer)

    def is_idle(self) -> bool:
        """Return whether all commands have been answered."""
        return self._reply is None or self._reply.done()

    def afterwards(self, act: Callable[[], Awaitable[object]]) -> None:
        """Act when all the commands that came until now have been answered. Errors are of no interest."""

        async def wait_and_act(reply: "asyncio.Future[Any]") -> None:
            await asyncio.wait([reply])
            with contextlib.suppress(Exception):
                await act()

        if self._reply:
            task = asyncio.create_task(wait_and_act(self._reply))
            self._afterwards.add(task)
            task.add_done_callback(self._afterwards.discard)

    async def _send(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            try:
                replies = await self._replies(batch)
            except BaseException:
                # The loop ends. Those that were queued must not wait for this task.
                lost = self._library.connection_error("the connection for the commands of waiting tasks was closed")
                self._answer([*batch, *self._queue], [lost] * (len(batch) + len(self._queue)))
                self._queue.clear()
                raise
            self._answer(batch, replies)

    async def _replies(self, batch: list[Any]) -> list[Any]:
        try:
            pipeline = self._client.pipeline(transaction=False)
            for args, options, _ in batch:
                pipeline.execute_command(*args, **options)
            replies: list[Any] = await self.within(pipeline.execute(raise_on_error=False))
            await self._follow(batch, replies)
            return replies
        except Exception as error:
            if protocol.refused_by_the_client(self._library, error):
                # For one command it has sent none of them.
                return [await self._alone(*each) for each in batch]
            return [error] * len(batch)

    async def _follow(self, batch: list[Any], replies: list[Any]) -> None:
        """Send the first command again that a node of a cluster has not answered.

        Only then does the client look for the node that has taken over: for a pipeline it does not.
        """
        if not protocol.is_cluster(self._client):
            return
        for at, reply in enumerate(replies):
            if isinstance(reply, (self._library.connection_error, self._library.timeout_error)):
                replies[at] = await self._alone(*batch[at])
                return

    async def _alone(self, args: tuple[Any, ...], options: dict[str, Any], _: object) -> Any:
        try:
            return await self.within(self._client.execute_command(*args, **options))
        except Exception as error:
            return protocol.refused_by_the_client(self._library, error) or error

    @staticmethod
    def _answer(batch: list[Any], replies: list[Any]) -> None:
        for (_, _, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)


class Subscriber:
    """One connection that has subscribed to channels of one server."""

    def __init__(
        self,
        library: Library,
        connection: Any,
        subscribe: str,
        limit: float | None,
        pulse: float,
        on_message: Callable[[bytes], None],
        on_lost: Callable[["Subscriber"], None],
    ) -> None:
        """Connect within `limit` seconds, and look every `pulse` seconds whether the server is still there."""
        self.is_lost = False
        self._library = library
        self._connection = connection
        self._subscribe = subscribe
        self._limit = limit
        self._pulse = pulse
        self._on_message = on_message
        self._on_lost = on_lost
        self._connected = _future()
        # By channel: whether the server has confirmed it.
        self._channels: dict[bytes, asyncio.Future[None]] = {}
        # The commands under way. A task that nothing refers to may vanish.
        self._sending: set[asyncio.Task[None]] = set()
        # The channel of each command whose reply is to come, None for a PING.
        self._asked: deque[bytes | None] = deque()
        self._listening = asyncio.create_task(self._listen())

    @property
    def address(self) -> tuple[str, int]:
        """Where it has connected to."""
        return self._connection.host, self._connection.port

    async def subscribe(self, channel: bytes) -> None:
        """Return when the server has confirmed the channel. Raise when it refuses, or is lost."""
        await asyncio.shield(self._connected)
        # Lost before this task had its turn: nobody would end what is added to the channels now.
        if self.is_lost:
            raise self._library.connection_error(CLOSED)
        if channel not in self._channels:
            self._channels[channel] = _future()
            # Not sent by this task: it would come behind those that only wait, and may be cancelled.
            sending = asyncio.create_task(self._send(channel, self._subscribe, channel))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        await asyncio.shield(self._channels[channel])

    def close(self) -> None:
        """Close the connection. All who wait are told that it is lost."""
        self._lose(self._library.connection_error(CLOSED))
        self._listening.cancel()

    def _lose(self, reason: Exception) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        for future in (self._connected, *self._channels.values()):
            if not future.done():
                future.set_exception(reason)
        self._on_lost(self)

    async def _send(self, asked: bytes | None, *command: Any) -> None:
        if self.is_lost:
            return
        self._asked.append(asked)
        try:
            await self._connection.send_command(*command)
        except Exception:
            self.close()

    async def _listen(self) -> None:
        reason: Exception = self._library.connection_error(CLOSED)
        try:
            # A server that hangs accepts a connection, and says nothing.
            await within(self._library, self._limit, self._connection.connect())
            self._connected.set_result(None)
            is_quiet = False
            # Before Python 3.12 a cancellation may be swallowed.
            while not self.is_lost:
                try:
                    message = await self._connection.read_response(timeout=self._pulse)
                except self._library.response_error as error:
                    self._refused(error)
                    continue
                if message is not None:
                    self._heard(message)
                elif is_quiet:
                    raise self._library.connection_error("the server of the subscription does not answer")
                else:
                    await self._send(None, "PING")
                is_quiet = message is None
        except Exception as error:
            reason = error
        finally:
            self._lose(reason)
            with contextlib.suppress(Exception):
                await self._connection.disconnect(nowait=True)

    def _heard(self, message: Any) -> None:
        # A PING that comes before any channel is answered in another form.
        kind = message[0] if isinstance(message, list) else b"pong"
        if kind.endswith(b"message"):
            self._on_message(message[2])
        elif kind.endswith(b"unsubscribe"):
            # The slot has left this server.
            raise self._library.connection_error("the server has ended the subscription")
        else:
            channel = self._asked.popleft() if self._asked else None
            if channel is not None:
                self._channels[channel].set_result(None)

    def _refused(self, error: Exception) -> None:
        channel = self._asked.popleft() if self._asked else None
        if channel is not None:
            self._channels.pop(channel).set_exception(error)


class Listener:
    """A task that waits for its grant."""

    def __init__(self, listeners: "Listeners", key: bytes, trusts_messages: bool) -> None:
        """Use `Listeners.listen`."""
        self.line = listeners.line
        self.subscriber: Subscriber | None = None
        # If not, a fence that it hears of may be that of a grant which was not made, or of another hold.
        self.trusts_messages = trusts_messages
        self.is_granted = False
        self._listeners = listeners
        self._key = key
        self._heard: asyncio.Future[int | None] | None = None

    async def subscribed(self) -> bytes:
        """Return the channel that hears of the key's grants from now on: subscribe first, then ask."""
        channel, self.subscriber = await self._listeners.subscribed(self._key)
        self._heard = _future()
        if self.subscriber.is_lost:
            self.tell(None)
        return channel

    def is_at_the_primary(self) -> bool:
        """Return whether the subscription is where the client's commands go. If not, it ends."""
        address = self._listeners.primary_address(self._key)
        if self.subscriber is None or address is None or self.subscriber.address == address:
            return True
        self.subscriber.close()
        return False

    async def hear(self, left_ms: float) -> int | None:
        """Return the fence of the grant, or None when the time is over or it has to be asked again."""
        assert self._heard is not None
        # Unlike wait_for, this swallows no cancellation.
        await asyncio.wait([self._heard], timeout=min(left_ms / 1000, ASK_AGAIN))
        return self._heard.result() if self._heard.done() else None

    def tell(self, fence: int | None) -> None:
        """Wake the task: it has this fence, or has to ask what has become of its request."""
        if self._heard and not self._heard.done():
            self._heard.set_result(fence)

    def fail(self, error: Exception) -> None:
        """Wake the task by an error: its wait is over, and it must not ask again."""
        if self._heard and not self._heard.done():
            self._heard.set_exception(error)


class Listeners:
    """All the waiting tasks of a client."""

    _all: ClassVar[weakref.WeakKeyDictionary[Any, "Listeners"]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, library: Library, client: Any) -> "Listeners":
        """Return those of a client in the loop that runs."""
        loop = asyncio.get_running_loop()
        found = cls._all.get(client)
        if found is None or found._loop is not loop:
            found = cls._all[client] = cls(library, client, loop)
        return found

    def __init__(self, library: Library, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Use `Listeners.of`."""
        # The tasks that wait keep the client alive, not this.
        self._client = weakref.proxy(client)
        self._library = library
        self.line = Line(library, self._client)
        self._loop = loop
        self._name = uuid4().hex
        self._waiting: dict[tuple[bytes, bytes], set[Listener]] = {}
        # When, and all the keys that were asked for.
        self._given_up: dict[tuple[bytes, bytes], tuple[float, Sequence[bytes]]] = {}
        # By the name of the node, "" outside clusters.
        self._subscribers: dict[str, Subscriber] = {}
        self._finding: asyncio.Future[Any] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def listen(self, keys: Sequence[bytes], token: bytes, is_own: bool) -> Iterator[Listener]:
        """Pass on to the listener what is heard of its keys and token, until the context ends."""
        # The messages name the first key.
        key = keys[0]
        # A token that was passed may have been granted before, or waits in several tasks. In a cluster a replica, too,
        # passes on the messages of its primary, which makes no grant that nobody hears of at the primary itself.
        listener = Listener(self, key, is_own and not protocol.is_cluster(self._client))
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
                    self._note_given_up(keys, token)
            if not self._waiting:
                self._idle = self._loop.call_later(IDLE, self._close)

    def primary_address(self, key: bytes) -> tuple[str, int] | None:
        """Return where the client has found the primary of a key last, None when it has one server only."""
        if protocol.is_cluster(self._client):
            node = self._node(key)
            return node.host, node.port
        return getattr(self._client.connection_pool, "master_address", None)

    async def subscribed(self, key: bytes) -> tuple[bytes, Subscriber]:
        """Subscribe to the channel for a key, if need be, at the server that has the key."""
        if not protocol.is_cluster(self._client):
            pool = self._client.connection_pool
            subscriber = self._subscriber("", pool.connection_class, pool.connection_kwargs, "SUBSCRIBE")
            channel = f"redis-lock:{self._name}".encode()
            await subscriber.subscribe(channel)
            return channel, subscriber
        library = self._library
        channel = f"redis-lock:{{{tag_of(protocol.slot_of(key))}}}:{self._name}".encode()
        try:
            await self._client.initialize()
            node = self._node(key)
            if (known := self._subscribers.get(node.name)) and known.is_lost:
                await self._find(key)
                node = self._node(key)
            # The client does not let a connection to a node try again either: the slot may be elsewhere by then.
            kwargs = {**node.connection_kwargs, "retry": library.no_retry(True)}
            subscriber = self._subscriber(node.name, node.connection_class, kwargs, "SSUBSCRIBE")
            await subscriber.subscribe(channel)
        except (library.error, library.cluster_exception) as error:
            if not protocol.may_ask_again(library, error, is_roaming=True):
                raise
            await self._find(key)
            raise library.connection_error(f"no subscription: {error}") from error
        return channel, subscriber

    def _node(self, key: bytes) -> Any:
        return self._client.nodes_manager.get_node_from_slot(protocol.slot_of(key))

    async def _find(self, key: bytes) -> None:
        """Let the client find out where the slot of a key is now. One command is enough for all that wait."""
        if self._finding is None or self._finding.done():
            # It changes nothing. Behind the line it would wait for a node that does not answer.
            asking = self._client.execute_command("LOCK.RELEASE", key, uuid4().hex)
            self._finding = asyncio.ensure_future(self.line.within(asking))
            self._finding.add_done_callback(_take_error)
        await asyncio.wait([self._finding])

    def _subscriber(self, name: str, connection_class: Any, kwargs: dict[str, Any], subscribe: str) -> Subscriber:
        found = self._subscribers.get(name)
        if found and not found.is_lost:
            return found
        # In RESP2 messages and replies come in one stream. Maintenance notifications would need RESP3.
        ours: dict[str, Any] = {
            "protocol": 2,
            "decode_responses": False,
            "health_check_interval": 0,
        }
        if setting(connection_class, "maint_notifications_config"):
            ours["maint_notifications_config"] = None
        kwargs = {name: value for name, value in kwargs.items() if "maint_notifications" not in name} | ours
        pulse = protocol.socket_timeout(self._library, self._client, True) or protocol.DEFAULT_SOCKET_TIMEOUT
        connection = connection_class(**kwargs)
        found = Subscriber(
            self._library, connection, subscribe, self.line.limit, pulse, self._on_message, self._on_lost
        )
        self._subscribers[name] = found
        return found

    def _on_message(self, message: bytes) -> None:
        try:
            event, fence_text, length, rest = message.split(b" ", 3)
            fence, key, token = int(fence_text), rest[: int(length)], rest[int(length) + 1 :]
        except ValueError:
            # Not from the module.
            return
        waiting = self._waiting.get((key, token), ())
        for listener in waiting:
            if event == b"cancelled":
                # As the reply to a request that blocks.
                listener.fail(self._library.response_error("CANCELLED the wait was ended by LOCK.CANCEL"))
            else:
                listener.tell(fence if event == b"granted" else None)
        if event == b"granted" and not waiting and (key, token) in self._given_up:
            _, keys = self._given_up[key, token]
            task = self._loop.create_task(self._give_back(keys, token))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif event == b"tryagain":
            # The server handed its role or the slot on: listen where the keys are now.
            for listener in waiting:
                if listener.subscriber:
                    listener.subscriber.close()

    def _on_lost(self, subscriber: Subscriber) -> None:
        for listeners in self._waiting.values():
            for listener in listeners:
                if listener.subscriber is subscriber:
                    listener.tell(None)

    async def _give_back(self, keys: Sequence[bytes], token: bytes) -> None:
        # Errors are of no interest: that the client is gone, for instance.
        await self.line.execute_all([("LOCK.RELEASE", key, token) for key in keys])

    def _note_given_up(self, keys: Sequence[bytes], token: bytes) -> None:
        now = time.monotonic()
        self._given_up[keys[0], token] = now, keys
        while self._given_up:
            oldest = next(iter(self._given_up))
            if now - self._given_up[oldest][0] < GIVEN_UP:
                return
            del self._given_up[oldest]

    def _close(self) -> None:
        for subscriber in self._subscribers.values():
            subscriber.close()
        self._subscribers.clear()


def _future() -> "asyncio.Future[Any]":
    """Return a future whose error nobody has to look at."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(_take_error)
    return future


def _take_error(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


_tags: dict[int, str] = {}
_tried = 0


def tag_of(slot: int) -> str:
    """Return a hash tag that lies in a slot: a key itself may have braces that make it none."""
    global _tried
    while slot not in _tags:
        _tags.setdefault(protocol.slot_of(b"%d" % _tried), str(_tried))
        _tried += 1
    return _tags[slot]
