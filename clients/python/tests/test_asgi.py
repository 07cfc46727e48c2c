"""The middleware for Idempotency-Key, over applications that speak plain ASGI."""

import asyncio
import json
from typing import Any

import pytest
import redis.asyncio

from redis_lock_client.contrib.asgi import IdempotencyMiddleware, Response

from .server import Server

Client = redis.asyncio.Redis


class App:
    """Counts its requests, and answers by their bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.begun = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.status = 201

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.extensions = scope["extensions"]
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        self.bodies.append(body)
        self.begun.set()
        await self.may_answer.wait()
        if body == b"raise":
            raise ZeroDivisionError
        number = str(len(self.bodies)).encode()
        await send(
            {"type": "http.response.start", "status": self.status, "headers": [(b"x-number", number), (b"a", b"\xe4")]}
        )
        await send({"type": "http.response.body", "body": b"\n\xff", "more_body": True})
        await send({"type": "http.response.body", "body": body})


async def request(app: Any, *parts: bytes, key: str | None = "key", method: str = "POST", **more: Any) -> Response:
    """What the application answers to a request whose body comes in these parts."""
    headers = [(b"Idempotency-Key", key.encode())] if key is not None else []
    headers += more.pop("headers", [])
    scope: dict[str, Any] = {"type": "http", "method": method, "path": "/pay", "query_string": b"", "headers": headers}
    scope["extensions"] = {"http.response.pathsend": {}}
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, **more}, receive, send)
    body = b"".join(message["body"] for message in sent[1:])
    return Response(sent[0]["status"], sent[0]["headers"], body)


@pytest.fixture
def app() -> App:
    return App()


async def test_a_repetition_gets_the_first_answer(server: Server, async_client: Client, app: App) -> None:
    wrapped = IdempotencyMiddleware(app, async_client)
    first = await request(wrapped, b"a", b"b")
    assert first == Response(201, [(b"x-number", b"1"), (b"a", b"\xe4")], b"\n\xffab")
    assert await request(wrapped, b"ab") == first
    assert (await request(wrapped, b"ab", key="other")).headers[0] == (b"x-number", b"2")
    assert [app.bodies, app.extensions] == [[b"ab", b"ab"], {}]
    assert 86_000_000 < min(server.admin.pttl(key) for key in server.admin.scan_iter()) <= 86_400_000


async def test_what_has_no_key_passes_through(async_client: Client, app: App) -> None:
    wrapped = IdempotencyMiddleware(app, async_client, methods={"POST", "PUT"})
    for _ in range(2):
        await request(wrapped, b"a", key=None)
        await request(wrapped, b"a", key="")
        await request(wrapped, b"a", method="GET")
        assert app.extensions
    for _ in range(2):
        await request(wrapped, b"a", method="PUT")
    assert len(app.bodies) == 7


async def test_another_kind_of_scope_passes_through(async_client: Client) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    unused: Any = None
    await IdempotencyMiddleware(app, async_client)({"type": "lifespan"}, unused, unused)
    assert seen == ["lifespan"]


@pytest.mark.parametrize(
    ("body", "more"),
    [(b"other", {}), (b"a", {"path": "/other"}), (b"a", {"query_string": b"q"}), (b"a", {"method": "PATCH"})],
)
async def test_another_request_with_the_key_is_refused(
    async_client: Client, app: App, body: bytes, more: dict[str, Any]
) -> None:
    wrapped = IdempotencyMiddleware(app, async_client)
    await request(wrapped, b"a")
    refused = await request(wrapped, body, **more)
    assert [refused.status, json.loads(refused.body)["status"], len(app.bodies)] == [422, 422, 1]
    assert dict(refused.headers)[b"content-length"] == str(len(refused.body)).encode()


async def test_a_request_in_progress_is_a_conflict(async_client: Client, app: App) -> None:
    app.may_answer.clear()
    wrapped = IdempotencyMiddleware(app, async_client)
    first = asyncio.create_task(request(wrapped, b"a"))
    await app.begun.wait()
    assert (await request(wrapped, b"a")).status == 409
    app.may_answer.set()
    assert (await first).status == 201
    assert await request(wrapped, b"a") == await first
    assert len(app.bodies) == 1


async def test_a_request_may_wait_for_the_first(server: Server, async_client: Client, app: App) -> None:
    app.may_answer.clear()
    wrapped = IdempotencyMiddleware(app, async_client, wait=20)
    first, *others = (asyncio.create_task(request(wrapped, b"a")) for _ in range(3))
    await app.begun.wait()
    keys: Any = await async_client.keys("*")
    await asyncio.to_thread(server.wait_for_waiters, keys[0], 2)
    app.may_answer.set()
    assert [await other for other in others] == [await first] * 2
    assert len(app.bodies) == 1


async def test_a_failure_is_not_kept(server: Server, async_client: Client, app: App) -> None:
    wrapped = IdempotencyMiddleware(app, async_client)
    app.status = 503
    assert (await request(wrapped, b"a")).status == 503
    with pytest.raises(ZeroDivisionError):
        await request(wrapped, b"raise")
    assert server.admin.dbsize() == 0
    app.status = 404
    assert (await request(wrapped, b"a")).status == 404
    assert (await request(wrapped, b"a")).status == 404
    assert len(app.bodies) == 3


async def test_callers_do_not_share_keys(async_client: Client, app: App) -> None:
    wrapped = IdempotencyMiddleware(app, async_client)
    callers = [[], [(b"Authorization", b"one")], [(b"authorization", b"two")], [(b"cookie", b"one")]]
    numbers = [(await request(wrapped, b"a", headers=headers)).headers[0][1] for headers in callers * 2]
    assert numbers == [b"1", b"2", b"3", b"4"] * 2
    shared = IdempotencyMiddleware(app, async_client, prefix="shared:", who=lambda scope: "all")
    numbers = [(await request(shared, b"a", headers=headers)).headers[0][1] for headers in callers]
    assert numbers == [b"5"] * 4


async def test_a_client_that_has_gone_begins_nothing(server: Server, async_client: Client, app: App) -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    unused: Any = None
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"key")]}
    await IdempotencyMiddleware(app, async_client)(scope, receive, unused)
    assert [app.bodies, server.admin.dbsize()] == [[], 0]


async def test_an_application_that_sends_nothing_is_told(async_client: Client) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(RuntimeError, match="no response"):
        await request(IdempotencyMiddleware(app, async_client), b"a")
