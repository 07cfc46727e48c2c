"""The locks of `redis_lock_client` for asyncio."""

from ..replies import (
    LockCancelledError,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    NotSupportedError,
    UnsupportedError,
)
from .keeper import KeepAlive
from .lock import Lock, MultiLock, ReadLock, RWLock, Semaphore, WriteLock
from .once import TaskResult, run_once, runs_once

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
