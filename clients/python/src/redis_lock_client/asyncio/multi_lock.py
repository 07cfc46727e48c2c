"""Several keys in one step, or none."""

from collections.abc import Sequence
from typing import Any, Unpack

from .. import _protocol as protocol
from .._core import MultiCore
from .lock import Lock

__all__ = ["MultiLock"]


class MultiLock(MultiCore, Lock):
    """A lock of several keys with one fence, taken and released together: `MultiLock(client, ["a", "b"], timeout=30)`.

    While it waits it holds nothing, so multi-locks never wait for one another in a circle. In a cluster all the keys
    need one hash tag. `locked` is about any of the keys, `owned` about all; `exec` is guarded by the first.
    """

    def __init__(
        self,
        redis: Any,
        names: Sequence[str | bytes],
        *,
        shared: Sequence[str | bytes] = (),
        **options: Unpack[protocol.AsyncLockOptions],
    ) -> None:
        """Take the names of the exclusive keys and of the shared ones, then the options of `Lock`."""
        super().__init__(redis, protocol.distinct_names(names, shared)[0], **options)
        self._take_names(names, shared)
