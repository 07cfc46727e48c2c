"""The Lock of redis-py and valkey-py on the redis-lock module. The asyncio side is `redis_lock_client.asyncio`."""

from .keeper import KeepAlive as KeepAlive
from .lock import Lock as Lock
from .lock import MultiLock as MultiLock
from .lock import ReadLock as ReadLock
from .lock import RWLock as RWLock
from .lock import Semaphore as Semaphore
from .lock import WriteLock as WriteLock
from .once import TaskResult as TaskResult
from .once import run_once as run_once
from .once import runs_once as runs_once
from .replies import FingerprintError as FingerprintError
from .replies import InProgressError as InProgressError
from .replies import LockCancelledError as LockCancelledError
from .replies import LockError as LockError
from .replies import LockNotOwnedError as LockNotOwnedError
from .replies import ModuleMissingError as ModuleMissingError
from .replies import NotSupportedError as NotSupportedError
from .replies import UnsupportedError as UnsupportedError
from .results import XFetch as XFetch
from .results import idempotent as idempotent
from .results import once as once
from .results import single_flight as single_flight
