"""The Lock of redis-py and valkey-py on the redis-lock module. The asyncio side is `redis_lock_client.asyncio`."""

from .keeper import KeepAlive
from .lock import Lock, MultiLock, ReadLock, RWLock, Semaphore, WriteLock
from .once import TaskResult, run_once, runs_once
from .replies import (
    FingerprintError,
    InProgressError,
    LockCancelledError,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    NotSupportedError,
    UnsupportedError,
)
from .results import XFetch, idempotent, once, single_flight

__all__ = [
    "FingerprintError",
    "InProgressError",
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
    "XFetch",
    "idempotent",
    "once",
    "run_once",
    "runs_once",
    "single_flight",
]
