"""One server of each version for all tests, emptied for each."""

import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
import redis.asyncio

from .server import Server, running, versions
from .worker import Package

# Who is started in the background by a script ignores it, and some tests interrupt themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", params=versions())
def shared_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    shared_server.admin.flushall()
    shared_server.admin.config_resetstat()
    return shared_server


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator["redis.asyncio.Redis"]:
    async with redis.asyncio.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(params=["threads", "asyncio"])
def package(request: pytest.FixtureRequest) -> Iterator[Package]:
    package = Package(request.param)
    yield package
    package.end()
