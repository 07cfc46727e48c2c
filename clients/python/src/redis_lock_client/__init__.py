"""The Lock of redis-py and valkey-py on the redis-lock module. The asyncio side is `redis_lock_client.asyncio`."""

from ._libraries import (
    LockCancelledError,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    NotSupportedError,
    UnsupportedError,
)
from .keep_alive import KeepAlive
from .lock import Lock, ReadLock, RWLock, WriteLock
from .multi_lock import MultiLock
from .once import TaskResult, run_once, runs_once
from .semaphore import Semaphore

__all__ = [
    "KeepAlive",
    "Lock",
    "LockCancelledError",
    "LockError",
    "LockNotOwnedError",
    "ModuleMissingError",
    "MultiLock",
    "NotSupportedError",
    "RWLock",
    "ReadLock",
    "Semaphore",
    "TaskResult",
    "UnsupportedError",
    "WriteLock",
    "run_once",
    "runs_once",
]
