"""redis-py's Lock on the redis-lock server module. The asyncio side is `redis_lock_client.asyncio`."""

from redis.exceptions import LockError, LockNotOwnedError

from .keep_alive import KeepAlive
from .lock import Lock, ReadLock, RWLock, WriteLock

__all__ = ["KeepAlive", "Lock", "LockError", "LockNotOwnedError", "RWLock", "ReadLock", "WriteLock"]
