"""Several keys in one step, or none."""

from collections.abc import Sequence
from typing import Any

from .. import _protocol as protocol
from .lock import Lock

__all__ = ["MultiLock"]


class MultiLock(Lock):
    """A lock of several keys with one fence, taken and released together: `MultiLock(client, ["a", "b"], timeout=30)`.

    While it waits it holds nothing, so multi-locks never wait for one another in a circle. In a cluster all the keys
    need one hash tag. `exec` is guarded by the first key.
    """

    ACQUIRE = "LOCK.MACQUIRE"

    def __init__(
        self,
        redis: Any,
        names: Sequence[str | bytes],
        *args: Any,
        shared: Sequence[str | bytes] = (),
        **kwargs: Any,
    ) -> None:
        """Take the names of the exclusive keys and of the shared ones, then the arguments of `Lock`."""
        both = protocol.distinct_names(names, shared)
        super().__init__(redis, both[0], *args, **kwargs)
        self._names = both
        modes = ["EXCLUSIVE"] * len(names) + ["SHARED"] * len(shared)
        self._terms = (*(("MODES", *modes) if shared else ()), *self._terms)

    async def locked(self) -> bool:
        """Return whether anybody holds one of the keys, an old client included."""
        return bool(await self._execute("EXISTS", *self._names))

    async def owned(self) -> bool:
        """Return whether this lock holds all of its keys."""
        return await self.check() is not None

    def _request(self, token: bytes, ttl_ms: int) -> tuple[Any, ...]:
        return (self.ACQUIRE, len(self._names), *self._names, token, ttl_ms, *self._terms)

    async def _old_client_pttl(self) -> int:
        # It may be any of the keys that an old client holds.
        return -1
