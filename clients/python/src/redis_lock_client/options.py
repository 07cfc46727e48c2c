"""The options that all locks take, and what is checked of them."""

import math
from typing import Literal, TypedDict

# For how many seconds a place in the queue outlives the connection that waited there, and the longest that the module
# takes.
GRACE = 5.0
LONGEST_GRACE = 3600


class LockOptions(TypedDict, total=False):
    """The options that every lock takes."""

    timeout: float | None
    sleep: float
    blocking: bool
    blocking_timeout: float | None
    thread_local: bool
    raise_on_release_error: bool
    grace: float
    linger: float | None
    at_least: float
    fallback: bool
    wait: Literal["block", "notify"]


# Raise an error that names the option if it is no finite number of seconds between these, or this is not `above` zero.
def check_time(option: str, seconds: float, most: float = math.inf, above: float | None = None) -> None:
    try:
        is_right = math.isfinite(seconds) and (seconds >= 0 if above is None else seconds > above) and seconds <= most
    except TypeError:
        raise TypeError(f"{option} must be a number of seconds, not {seconds!r}") from None
    if not is_right:
        least = "from 0" if above is None else f"above {above}"
        raise ValueError(f"{option} must be a finite number of seconds, {least} to {most}, not {seconds}")
