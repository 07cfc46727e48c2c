"""The locks of `redis_lock_client` for asyncio."""

from ..replies import (
    FingerprintError,
    InProgressError,
    LockCancelledError,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    NotSupportedError,
    UnsupportedError,
)
from .calls import idempotent, single_flight
from .keeper import KeepAlive
from .lock import Lock, MultiLock, ReadLock, RWLock, Semaphore, WriteLock
from .once import TaskResult, run_once, runs_once
from .results import XFetch, once

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
