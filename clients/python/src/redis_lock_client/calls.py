"""Decorators: many calls with one key run once, and all of them get what it returns."""

import functools
import hashlib
import inspect
import json
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from .once import wrapping
from .results import ResultOptions, SharedOptions, result_of, take

F = TypeVar("F", bound=Callable[..., Any])

# For how many seconds the result of an idempotent call is kept: a day.
KEEP = 86_400.0

# A template of the arguments, "page:{number}", or what returns the name for the same arguments.
Key = str | Callable[..., str | bytes]


# Return what names the key of a call.
def naming(function: Callable[..., Any], key: Key) -> Callable[..., str | bytes]:
    if callable(key):
        return key
    arguments, template = arguments_of(function), key
    return lambda *args, **kwargs: template.format(**arguments(*args, **kwargs))


# Return what tells a call's arguments by their names.
def arguments_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    signature = inspect.signature(function)

    def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    return arguments


# Return what tells the arguments of a call as JSON.
def json_of(function: Callable[..., Any]) -> Callable[..., str]:
    arguments = arguments_of(function)

    def say(*args: Any, **kwargs: Any) -> str:
        try:
            return json.dumps(arguments(*args, **kwargs), sort_keys=True)
        except TypeError as error:
            raise TypeError(f"{function} needs a `fingerprint`, as its arguments are no JSON: {error}") from error

    return say


def single_flight(redis: Any, key: Key, **options: Unpack[ResultOptions]) -> Callable[[F], F]:
    """Decorate a function whose calls with one key run once, while the others wait and get what it returns.

    `key` is a template of the arguments, `"page:{number}"`, or a function of the same arguments that returns the name.
    The options are those of `once`. With a client for asyncio it is a coroutine function.
    """
    return _decorating(redis, key, options, lambda function: None)


def idempotent(
    redis: Any,
    key: Key,
    fingerprint: Callable[..., str | bytes] | None = None,
    **options: Unpack[SharedOptions],
) -> Callable[[F], F]:
    """Decorate a function that runs once for a key: to call it again returns the result of the first call.

    The result is kept with a fingerprint of the arguments, for `keep` seconds (a day). Other arguments with the same
    key raise FingerprintError. While the first call runs, another one waits for `wait` seconds (5; 0 is not at all)
    before InProgressError is raised. A call that raises leaves nothing, and the next one runs. A process that dies
    after a side effect, and before the result is stored, leaves nothing, too.

    `key` and the options are those of `single_flight`. `fingerprint` is a function of the same arguments that returns
    what they must have in common; without it the arguments must be JSON.
    """
    more = {"keep": KEEP, **options, "early": None}
    return _decorating(redis, key, more, lambda function: fingerprint or json_of(function))


# Return what decorates a function. Values are marked by what `marks` makes of the arguments, so that other arguments
# are found out. A wrong client or option is an error here, not at a call.
def _decorating(redis: Any, key: Key, options: Any, marks: Callable[..., Any]) -> Callable[[F], F]:
    result_of(redis, "", **options)

    def decorate(function: F) -> F:
        name, say = naming(function, key), marks(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            more = options
            if say:
                said = say(*args, **kwargs)
                more = {**options, "mark": hashlib.sha256(said.encode() if isinstance(said, str) else said).digest()}
            result = result_of(redis, name(*args, **kwargs), **more)
            return take(result, functools.partial(function, *args, **kwargs))

        return wrapping(redis, function, call)  # type: ignore[return-value]

    return decorate
