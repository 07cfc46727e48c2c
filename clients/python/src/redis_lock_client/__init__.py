"""The Lock of redis-py and valkey-py on the redis-lock module. The asyncio side is `redis_lock_client.asyncio`."""

from .keeper import KeepAlive
from .lock import Lock, MultiLock, ReadLock, RWLock, Semaphore, WriteLock
from .once import TaskResult, run_once, runs_once
from .replies import (
    LockCancelledError,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    NotSupportedError,
    UnsupportedError,
)

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
