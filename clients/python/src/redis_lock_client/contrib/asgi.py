"""ASGI middleware for the header Idempotency-Key, in Starlette, FastAPI and whatever else speaks ASGI."""

import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, NamedTuple

from ..replies import FingerprintError, InProgressError
from ..results import KEEP, result_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Response(NamedTuple):
    """What the application has sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class NotKeptError(Exception):
    """A response, its argument, that is sent and not kept."""


# Return the first of the request's headers of this name, or nothing.
def header(scope: Message, name: bytes) -> bytes:
    return next((bytes(value) for each, value in scope["headers"] if each.lower() == name), b"")


def caller(scope: Message) -> bytes:
    """Return what tells one caller from another: the request's headers Authorization and Cookie."""
    return header(scope, b"authorization") + b"\n" + header(scope, b"cookie")


class IdempotencyMiddleware:
    """Answers a request with a header Idempotency-Key once, and its repetitions by the response that is kept.

        app.add_middleware(IdempotencyMiddleware, redis=redis.asyncio.Redis())

    While the first one is being answered, the others wait for `wait` seconds (0), and then get 409. Another request
    with the same key gets 422: other in method, path, query or body. A response of 500 or above is not kept, nor that
    of an application that raises: then the next request runs. A request without the header passes through, and so does
    one of another method than `methods`. Bodies of requests and responses are held in memory.

    Keys of different callers are different, and `who` says who calls: see `caller`. A response is kept for `keep`
    seconds (a day). When a process dies, the next one may run after `ttl` seconds (30).
    """

    def __init__(
        self,
        app: App,
        redis: Any,
        *,
        keep: float = KEEP,
        ttl: float = 30,
        wait: float = 0,
        methods: Collection[str] = ("POST", "PATCH"),
        prefix: str = "idempotency:",
        who: Callable[[Message], str | bytes] = caller,
    ) -> None:
        """Take the application, a client for asyncio, and options. Times are in seconds."""
        self._app = app
        self._result = functools.partial(
            result_of, redis, keep=keep, ttl=ttl, wait=wait, early=None, pack=packed, unpack=unpacked
        )
        self._methods = frozenset(methods)
        self._prefix = prefix
        self._who = who

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_ours = scope["type"] == "http" and scope["method"] in self._methods
        if not is_ours or not (key := header(scope, b"idempotency-key")):
            return await self._app(scope, receive, send)
        if (body := await body_of(receive)) is None:
            return None

        async def make() -> Response:
            response = await respond(self._app, scope, body, receive)
            if response.status >= 500:
                raise NotKeptError(response)
            return response

        request = digest(scope["method"], scope["path"], scope.get("query_string", b""), body)
        # What a client has chosen is no part of the name: its braces would say in which slot it lies.
        name = self._prefix + digest(self._who(scope), key).hexdigest()
        try:
            response = await self._result(name, mark=request.digest()).take(make)
        except NotKeptError as error:
            (response,) = error.args
        except InProgressError:
            response = problem(409, "A request with this Idempotency-Key is being answered.")
        except FingerprintError:
            response = problem(422, "This Idempotency-Key was used with another request.")
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        await send({"type": "http.response.body", "body": response.body})


# Return the body of a request, or None when its client has gone.
async def body_of(receive: Receive) -> bytes | None:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


# Return the whole response of the application to a request whose body was read.
async def respond(app: App, scope: Message, body: bytes, receive: Receive) -> Response:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def replay() -> Message:
        return left.pop() if left else await receive()

    async def record(message: Message) -> None:
        # It may be used again for the next one.
        sent.append({**message})

    # No extension: a response is what can be kept.
    await app({**scope, "extensions": {}}, replay, record)
    start = next((message for message in sent if message["type"] == "http.response.start"), None)
    if start is None:
        raise RuntimeError("the application has sent no response")
    headers = [(bytes(name), bytes(value)) for name, value in start.get("headers", ())]
    parts = (message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return Response(start["status"], headers, b"".join(parts))


# Of several texts, each of which counts with its length.
def digest(*texts: str | bytes) -> "hashlib._Hash":
    parts = [text.encode() if isinstance(text, str) else text for text in texts]
    return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts))


def packed(response: Response) -> bytes:
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers]
    return json.dumps([response.status, headers]).encode() + b"\n" + response.body


def unpacked(stored: bytes) -> Response:
    head, _, body = stored.partition(b"\n")
    status, headers = json.loads(head)
    return Response(status, [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers], body)


def problem(status: int, title: str) -> Response:
    body = json.dumps({"status": status, "title": title}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    return Response(status, headers, body)
