"""A pytest plugin that puts our locks where redis-py's tests look for its own, before they are imported."""

import pytest
import redis.asyncio.lock
import redis.lock
from redis.exceptions import ResponseError

import redis_lock_client
import redis_lock_client.asyncio

from .not_applying import NOT_APPLYING, SLEEPS


def pytest_configure() -> None:
    """Substitute the class that `from redis.lock import Lock` finds. Their files stay as they are."""
    redis.lock.Lock = redis_lock_client.Lock  # type: ignore[misc]
    redis.asyncio.lock.Lock = redis_lock_client.asyncio.Lock  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect the failure of each test that does not apply: one that passes, or is gone, is an error."""
    seen = set()
    for item in items:
        name = f"{item.path.parent.name}/{item.name.split('[')[0]}"
        if name in NOT_APPLYING:
            seen.add(name)
            reason = NOT_APPLYING[name]
            # For this reason, and no other.
            raises = AssertionError if reason == SLEEPS else ResponseError
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason, raises=raises))
    if unknown := set(NOT_APPLYING) - seen:
        raise pytest.UsageError(f"tests that do not apply and are not there: {sorted(unknown)}")
