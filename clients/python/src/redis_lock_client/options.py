"""The options that all locks take, and what is checked of them."""

import math
from typing import Literal, TypedDict

from .lease import TOO_SHORT_TIMEOUT

# For how many seconds a place in the queue outlives the connection that waited there, and the longest that the module
# takes.
GRACE = 5.0
LONGEST_GRACE = 3600


class OwnOptions(TypedDict, total=False):
    """Those that django-redis' `cache.lock` does not have."""

    raise_on_release_error: bool
    grace: float
    linger: float | None
    at_least: float
    fallback: bool
    wait: Literal["block", "notify"]


class LockOptions(OwnOptions, total=False):
    """The options that every lock takes."""

    timeout: float | None
    sleep: float
    blocking: bool
    blocking_timeout: float | None
    thread_local: bool


# Return whether an option is a finite number.
def is_finite(option: str, seconds: float) -> bool:
    try:
        return math.isfinite(seconds)
    except TypeError:
        raise TypeError(f"{option} must be a number of seconds, not {seconds!r}") from None


# Return a timeout whose lease has an end, and one that has not passed already. 0 is none, as in the libraries.
def checked_timeout(seconds: float | None, option: str) -> float | None:
    if seconds is None:
        return None
    if not is_finite(option, seconds):
        raise ValueError(f"{option} must be a finite number: None is for ever")
    if seconds < 0:
        raise ValueError(f"{option} must not be negative")
    # No grant would come in time, and an acquire would ask without end.
    if 0 < seconds <= TOO_SHORT_TIMEOUT:
        raise ValueError(f"{option} must be above {TOO_SHORT_TIMEOUT} seconds: a lease is shorter by 1 % and 2 ms")
    return seconds
