"""The middleware for Idempotency-Key, over applications that speak plain ASGI."""

import asyncio
import functools
import json
from typing import Any

import pytest

from redis_lock_client.contrib.asgi import IdempotencyMiddleware, Response


class App:
    """Counts its requests, and answers by their bodies."""

    def __init__(self):
        self.bodies: list[bytes] = []
        self.begun, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.status = 201

    async def __call__(self, scope, receive, send):
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
        if body == b"nothing":
            return
        headers = [(b"x-number", b"%d" % len(self.bodies)), (b"a", b"\xe4")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"\n\xff", "more_body": True})
        await send({"type": "http.response.body", "body": body})


async def request(app, *parts, key="key", method="POST", **more):
    """What the application answers to a request whose body comes in these parts."""
    headers = [(b"Idempotency-Key", key.encode())] if key is not None else []
    scope = {"type": "http", "method": method, "path": "/pay", "query_string": b"", "headers": headers, **more}
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    await app(scope | {"extensions": {"http.response.pathsend": {}}}, receive, send)
    return Response(sent[0]["status"], sent[0]["headers"], b"".join(message["body"] for message in sent[1:]))


@pytest.fixture
async def app():
    return App()


@pytest.fixture
async def wrap(app, async_client):
    return functools.partial(IdempotencyMiddleware, app, async_client)


async def test_a_repetition_gets_the_first_answer(server, app, wrap):
    first = await request(wrap(), b"a", b"b")
    assert first == Response(201, [(b"x-number", b"1"), (b"a", b"\xe4")], b"\n\xffab")
    assert await request(wrap(), b"ab") == first
    assert (await request(wrap(), b"ab", key="other")).headers[0] == (b"x-number", b"2")
    assert [app.bodies, app.extensions] == [[b"ab", b"ab"], {}]
    assert 86_000_000 < min(server.admin.pttl(key) for key in server.admin.scan_iter()) <= 86_400_000


async def test_what_has_no_key_passes_through(app, wrap):
    wrapped = wrap(methods={"POST", "PUT"})
    for _ in range(2):
        for more in ({"key": None}, {"key": ""}, {"method": "GET"}, {"type": "websocket"}):
            await request(wrapped, b"a", **more)
            assert app.extensions
    for _ in range(2):
        await request(wrapped, b"a", method="PUT")
    assert len(app.bodies) == 9


async def test_another_request_with_the_key_is_refused(app, wrap):
    await request(wrap(), b"a")
    others: list[Any] = [
        (b"other", {}),
        (b"a", {"path": "/other"}),
        (b"a", {"query_string": b"q"}),
        (b"a", {"method": "PATCH"}),
    ]
    for body, more in others:
        refused = await request(wrap(), body, **more)
        assert [refused.status, json.loads(refused.body)["status"], len(app.bodies)] == [422, 422, 1]
        assert dict(refused.headers)[b"content-length"] == str(len(refused.body)).encode()


@pytest.mark.parametrize("wait", [0, 20])
async def test_a_request_in_progress_is_a_conflict_or_waits_for_the_first(server, app, wrap, wait):
    app.may_answer.clear()
    first = asyncio.create_task(request(wrap(), b"a"))
    await app.begun.wait()
    others = [asyncio.create_task(request(wrap(wait=wait), b"a")) for _ in range(2)]
    if wait:
        await asyncio.to_thread(server.wait_for_waiters, next(server.admin.scan_iter()), 2)
    else:
        assert [(await other).status for other in others] == [409, 409]
    app.may_answer.set()
    assert (await first).status == 201
    assert await request(wrap(), b"a") == await first
    if wait:
        assert [await other for other in others] == [await first] * 2
    assert len(app.bodies) == 1


async def test_a_failure_is_not_kept(server, app, wrap):
    app.status = 503
    assert (await request(wrap(), b"a")).status == 503
    with pytest.raises(ZeroDivisionError):
        await request(wrap(), b"raise")
    with pytest.raises(RuntimeError, match="no response"):
        await request(wrap(), b"nothing")
    assert server.admin.dbsize() == 0
    app.status = 404
    assert [(await request(wrap(), b"a")).status for _ in range(2)] == [404, 404]
    assert len(app.bodies) == 4


async def test_callers_do_not_share_keys(wrap):
    key = (b"Idempotency-Key", b"key")
    more = [(b"Authorization", b"one")], [(b"authorization", b"two")], [(b"cookie", b"one")]
    callers = [[key], *([key, *each] for each in more)]
    alone, shared = wrap(), wrap(prefix="shared:", who=lambda scope: "all")
    answers = [await request(app, b"a", headers=each) for app in (alone, alone, shared) for each in callers]
    assert [answer.headers[0][1] for answer in answers] == [b"1", b"2", b"3", b"4"] * 2 + [b"5"] * 4


async def test_a_client_that_has_gone_begins_nothing(server, app, wrap):
    async def receive():
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"key")]}
    await wrap()(scope, receive, None)
    assert [app.bodies, server.admin.dbsize()] == [[], 0]
