"""Locks on a server without the module: SET NX PX, and scripts that act only if the token is still the caller's."""

from typing import Any

# A key of another type is somebody else's.
_IF_OURS = "if redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1] then return "

SCRIPTS = {
    "LOCK.RELEASE": _IF_OURS + "redis.call('del', KEYS[1]) end return 0",
    "LOCK.RENEW": _IF_OURS + "redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    # 1 stands for a fence.
    "LOCK.CHECK": _IF_OURS + "1 end return false",
}

# What a lock without a fence has for one.
NO_FENCE = 0

LOST = (
    "The server has no module redis-lock: the locks of this client fall back to SET NX PX. What is lost: the fair "
    "queue, fences, readers and writers, semaphores, multi-locks, guarded commands, at_least and linger. An eviction "
    "or a failover can cut a hold short."
)


# Return the command that does in the fallback what a command of the module does.
def script(command: str, name: Any, *args: Any) -> tuple[Any, ...]:
    return ("EVAL", SCRIPTS[command], 1, name, *args)
