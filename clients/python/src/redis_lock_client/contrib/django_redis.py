"""django-redis' `cache.lock` on the redis-lock server module, and a decorator.

CACHES = {"default": {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": "redis://127.0.0.1:6379/1",
    "OPTIONS": {
        "CLIENT_CLASS": "redis_lock_client.contrib.django_redis.LockClient",
        "LOCK_OPTIONS": {"grace": 2},
    },
}}
"""

import functools
from collections.abc import Callable
from typing import Any, Unpack

from django.core.cache import caches
from django_redis.client import DefaultClient
from django_redis.client.sentinel import SentinelClient

from ..lock import Lock
from ..once import called, refuse_what_runs_later
from ..options import LockOptions
from ..results import F, naming

# The arguments of django-redis' own after `key` and `version`.
ARGUMENTS = ("timeout", "sleep", "blocking", "blocking_timeout", "client", "thread_local")


class LockMixin:
    """Gives a client of django-redis the module's locks: `class Mine(LockMixin, ShardClient)`."""

    def lock(
        self, key: Any, version: int | None = None, *args: Any, client: Any = None, **options: Unpack[LockOptions]
    ) -> Lock:
        """Return a `redis_lock_client.Lock` under the cache's prefix and version. It takes all options of the lock.

        Those in `LOCK_OPTIONS` of the cache's `OPTIONS` hold for each lock that does not say otherwise.
        """
        this: Any = self
        said: Any = {**this._options.get("LOCK_OPTIONS", {}), **dict(zip(ARGUMENTS, args, strict=False)), **options}
        name = this.make_key(key, version=version)
        if (client := said.pop("client", client)) is None:
            # Of shards each has its server.
            client = this.get_server(name) if hasattr(this, "get_server") else this.get_client(write=True)
        return Lock(client, name, **said)


class LockClient(LockMixin, DefaultClient):
    """django-redis' default client with the module's locks."""


class SentinelLockClient(LockMixin, SentinelClient):
    """django-redis' client for Sentinel with the module's locks."""


def locked(name: str, *, cache: str = "default", **options: Unpack[LockOptions]) -> Callable[[F], F]:
    """Let a function, a view for instance, run only while it holds a lock of the cache.

    The name may contain arguments of the function: `@locked("invoice:{pk}", timeout=30)`. When the lock is not
    available within its `blocking_timeout`, LockError is raised and the function is not run.
    """

    def decorate(function: F) -> F:
        refuse_what_runs_later(function)
        name_of = naming(function, name)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with caches[cache].lock(name_of(*args, **kwargs), **options) as lock:
                return called(lock.redis, functools.partial(function, *args, **kwargs))

        return run  # type: ignore[return-value]

    return decorate
