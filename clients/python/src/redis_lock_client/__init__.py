"""redis-py's Lock on the redis-lock server module. The asyncio side is `redis_lock_client.asyncio`."""

from redis.exceptions import LockError, LockNotOwnedError

from ._protocol import NotSupportedError
from .keep_alive import KeepAlive
from .lock import Lock, ReadLock, RWLock, WriteLock
from .multi_lock import MultiLock
from .once import TaskResult, run_once
from .semaphore import Semaphore

__all__ = [
    "KeepAlive",
    "Lock",
    "LockError",
    "LockNotOwnedError",
    "MultiLock",
    "NotSupportedError",
    "RWLock",
    "ReadLock",
    "Semaphore",
    "TaskResult",
    "WriteLock",
    "run_once",
]
