"""The locks of `redis_lock_client` for asyncio, and what is the same there."""

from . import FingerprintError as FingerprintError
from . import InProgressError as InProgressError
from . import LockCancelledError as LockCancelledError
from . import LockError as LockError
from . import LockNotOwnedError as LockNotOwnedError
from . import ModuleMissingError as ModuleMissingError
from . import NotSupportedError as NotSupportedError
from . import TaskResult as TaskResult
from . import UnsupportedError as UnsupportedError
from . import XFetch as XFetch
from . import idempotent as idempotent
from . import once as once
from . import run_once as run_once
from . import runs_once as runs_once
from . import single_flight as single_flight
from .aio import Lock as Lock
from .aio import MultiLock as MultiLock
from .aio import ReadLock as ReadLock
from .aio import RWLock as RWLock
from .aio import Semaphore as Semaphore
from .aio import WriteLock as WriteLock
from .keeper import AsyncKeepAlive

KeepAlive = AsyncKeepAlive
