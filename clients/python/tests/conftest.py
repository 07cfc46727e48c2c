"""One server of each version for all tests, emptied for each."""

import signal

import pytest
import redis
import redis.asyncio

from .package import KINDS, Package
from .proxy import Proxy
from .server import running, versions

# Who is started in the background by a script ignores it, and some tests interrupt themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", params=versions())
def shared_server(request):
    with running(request.param) as server:
        yield server


@pytest.fixture
def server(shared_server):
    shared_server.admin.flushall()
    shared_server.admin.config_resetstat()
    # What a test that has failed may have left.
    shared_server.admin.config_set("min-replicas-to-write", 0)
    shared_server.admin.execute_command("ACL", "SETUSER", "default", "+@all")
    return shared_server


@pytest.fixture
def proxy(server):
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def client(server):
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
async def async_client(server):
    async with redis.asyncio.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(params=["threads", "asyncio"])
def package(request):
    with Package(request.param) as package:
        yield package


@pytest.fixture(params=KINDS)
def way(request):
    """Either package, in each way to wait."""
    with Package(request.param) as package:
        yield package
