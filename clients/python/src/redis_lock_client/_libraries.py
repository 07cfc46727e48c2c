"""The libraries whose clients the locks use: redis-py and valkey-py. Each is imported when a client of it is seen."""

import functools
import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

NAMES = ("redis", "valkey")

# All the versions before the first that is supported.
TOO_OLD = ("2", "3", "4")

# What a pool says that has no connection left, and one that has waited for one in vain.
NO_CONNECTION = ("Too many connections", "No connection available.")

# The option that both take to return a reply as the server sent it.
NEVER_DECODE = "NEVER_DECODE"


class LockError(Exception):
    """A lock could not be acquired, released or prolonged.

    What is raised is also the `LockError` of the client's library, and a ValueError as that is.
    """

    def __init__(self, message: str | None = None, lock_name: Any = None) -> None:
        """Take the text and the name of the lock."""
        super().__init__(message)
        self.message = message
        self.lock_name = lock_name

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parts: the class of an error is made for its library when it is needed."""
        return _again, _parts(self)


class LockNotOwnedError(LockError):
    """The hold is lost. What is raised is also the `LockNotOwnedError` of the client's library."""


class LockCancelledError(LockError):
    """An operator has ended the wait by LOCK.CANCEL. What is raised is also the `LockError` of the client's library."""


class UnsupportedError(Exception):
    """The server does not know what was asked of it. What is raised is also the library's `ResponseError`."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parts, as LockError does."""
        return _again, _parts(self)


# The name that the class had before.
NotSupportedError = UnsupportedError


class ModuleMissingError(UnsupportedError):
    """The server has not loaded the module redis-lock."""


class Library:
    """The classes of redis-py or of valkey-py."""

    def __init__(self, name: str) -> None:
        """Import the library. Raise ImportError when it is not installed."""
        self.name = name
        version = import_module(name).__version__
        if version.split(".")[0] in TOO_OLD:
            raise ImportError(f"{name} {version} is too old: redis 5 or newer, or valkey 6 or newer, is needed")
        errors = import_module(f"{name}.exceptions")
        self.error: type[Exception] = getattr(errors, f"{name.capitalize()}Error")
        self.connection_error: type[Exception] = errors.ConnectionError
        self.timeout_error: type[Exception] = errors.TimeoutError
        self.response_error: type[Exception] = errors.ResponseError
        self.no_permission_error: type[Exception] = errors.NoPermissionError
        self.try_again_error: type[Exception] = errors.TryAgainError
        # It is no RedisError: what a cluster's client says when it finds no node.
        self.cluster_exception: type[Exception] = getattr(errors, f"{name.capitalize()}ClusterException")
        # Everything that an acquire may try once more.
        self.faults = (errors.ConnectionError, errors.TimeoutError, errors.ResponseError)
        # Cured by time where servers hand their roles over.
        self.passing = (
            errors.ReadOnlyError,
            errors.ClusterError,
            errors.ClusterDownError,
            errors.AskError,
            self.cluster_exception,
        )
        # What a cluster's client makes of answers, too.
        self._answers = (errors.ResponseError, errors.ClusterError)
        self._max_connections_error: type[Exception] = errors.MaxConnectionsError
        self._errors = errors

    def lock_class(self, is_async: bool) -> type:
        """Return the library's own lock."""
        module = import_module(f"{self.name}.asyncio.lock" if is_async else f"{self.name}.lock")
        return cast(type, module.Lock)

    def default_socket_timeout(self, connection_class: type | None, is_async: bool) -> float | None:
        """Return how many seconds a connection waits for a reply when nobody says otherwise."""
        if connection_class is None:
            name = f"{self.name}.asyncio.connection" if is_async else f"{self.name}.connection"
            connection_class = import_module(name).Connection
        parameter = setting(connection_class, "socket_timeout")
        return parameter.default if parameter else None

    def no_retry(self, is_async: bool) -> Any:
        """Return the retry that is none."""
        module = import_module(f"{self.name}.asyncio.retry" if is_async else f"{self.name}.retry")
        return module.Retry(import_module(f"{self.name}.backoff").NoBackoff(), 0)

    def is_exhausted(self, error: Exception) -> bool:
        """Return whether the pool has no connection left. Not all pools and versions have a class for this."""
        return isinstance(error, self._max_connections_error) or str(error) in NO_CONNECTION

    def is_of_a_connection(self, error: Exception) -> bool:
        """Return whether there was no answer, because a connection is lost or cannot be made."""
        return not isinstance(error, self._answers) and not self.is_exhausted(error)

    def lock_error(self, message: str, name: Any) -> LockError:
        """Return an error that both this package's and the library's `LockError` catch."""
        return cast(LockError, self._mixed(LockError)(message, lock_name=name))

    def not_owned(self, doing: str, name: Any) -> LockNotOwnedError:
        """Return the error of an owner that is none any more."""
        text = f"Cannot {doing} a lock that's no longer owned"
        return cast(LockNotOwnedError, self._mixed(LockNotOwnedError)(text, lock_name=name))

    def cancelled(self, name: Any) -> LockCancelledError:
        """Return the error of a wait that somebody else has ended."""
        text = "Unable to acquire lock: the wait was ended by LOCK.CANCEL"
        return cast(LockCancelledError, self._mixed(LockCancelledError)(text, lock_name=name))

    def not_supported(self, message: str) -> UnsupportedError:
        """Return the error of a server that lacks a command."""
        return cast(UnsupportedError, self._mixed(UnsupportedError)(message))

    def module_missing(self, message: str) -> ModuleMissingError:
        """Return the error of a server without the module."""
        return cast(ModuleMissingError, self._mixed(ModuleMissingError)(message))

    def _mixed(self, ours: Any) -> Any:
        # Of the nearest name that the library has, too.
        names = (cls.__name__ for cls in ours.__mro__ if hasattr(self._errors, cls.__name__))
        theirs: Any = getattr(self._errors, next(names, "ResponseError"))
        return _mixed_error(ours, theirs)


@functools.cache
def library(name: str) -> Library:
    """Return a library by its name."""
    return Library(name)


@functools.cache
def _mixed_error(ours: Any, theirs: Any) -> Any:
    return type(ours.__name__, (ours, theirs), {"__module__": ours.__module__, "__doc__": ours.__doc__})


def _parts(error: Exception) -> tuple[Any, ...]:
    ours = next(cls for cls in type(error).__mro__[1:] if cls.__module__ == __name__)
    name = next(cls.__module__.split(".")[0] for cls in type(error).__mro__ if cls.__module__.split(".")[0] in NAMES)
    return ours, name, error.args, getattr(error, "lock_name", None)


def _again(ours: type[Exception], name: str, args: Sequence[Any], lock_name: Any) -> Any:
    named = {"lock_name": lock_name} if issubclass(ours, LockError) else {}
    return library(name)._mixed(ours)(*args, **named)


@functools.cache
def _kind(cls: type) -> tuple[str | None, bool]:
    """Return a client's library, None when it is of neither, and whether it is one for asyncio."""
    modules = [base.__module__.split(".") for base in cls.__mro__]
    name = next((module[0] for module in modules if module[0] in NAMES), None)
    if name is None:
        return None, inspect.iscoroutinefunction(getattr(cls, "execute_command", None))
    return name, any(module[:2] == [name, "asyncio"] for module in modules)


def library_of(client: Any, is_async: bool, package: str) -> Library:
    """Return a client's library. Raise TypeError when the client is sync and the lock is not, or the reverse."""
    name, of_asyncio = _kind(client.__class__)
    if of_asyncio != is_async:
        other = "sync" if is_async else "asyncio"
        right = package.removesuffix(".asyncio") if is_async else f"{package}.asyncio"
        raise TypeError(f"the client is {'a' if is_async else 'an'} {other} one: its locks are in {right}")
    if name is None:
        # A client that only behaves like one has a pool of one.
        pool: Any = type(getattr(client, "connection_pool", None))
        name, _ = _kind(pool)
    if name is not None:
        return library(name)
    for name in NAMES:
        try:
            return library(name)
        except ImportError:
            continue
    raise ImportError('no client library is installed: pip install "redis>=5", or valkey')


@functools.cache
def setting(connection_class: type, name: str) -> inspect.Parameter | None:
    """Return a parameter of a connection, None when it has none of this name. Versions of the libraries differ."""
    for cls in connection_class.__mro__:
        if "__init__" in vars(cls):
            parameter = inspect.signature(vars(cls)["__init__"]).parameters.get(name)
            if parameter is not None:
                return parameter
    return None
