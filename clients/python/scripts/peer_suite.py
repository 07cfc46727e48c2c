"""Runs redis-py's own tests of its locks against ours: `make peer-suite`.

The sdist of the installed redis-py is fetched by pip, and its two files of lock tests run as they are. This module is
also the plugin of pytest that puts our locks where these files look for their own.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis.asyncio.lock
import redis.lock
from redis.exceptions import ResponseError

import redis_lock_client
import redis_lock_client.asyncio

HERE = Path(__file__).parents[1]
FOLDER = HERE / ".peer"
FILES = ["tests/test_lock.py", "tests/test_asyncio/test_lock.py"]

# The tests that do not apply to a lock of the module, and why. PEER-SUITE.md says more.
STRING = "reads the lock's value by GET, or looks for a key without ttl: the key holds a lock with a ttl, not a string"
SLEEPS = "counts the sleeps of a polling loop on a clock of its own: the wait is in the server, nothing sleeps here"
OF_STRINGS = ("test_lock", "test_lock_token", "test_lock_token_thread_local_false", "test_context_manager")
NOT_APPLYING = {f"{folder}/{name}": STRING for folder in ("tests", "test_asyncio") for name in OF_STRINGS} | {
    "tests/test_blocking_timeout": SLEEPS,
    "tests/test_context_manager_blocking_timeout": SLEEPS,
    "test_asyncio/test_blocking_timeout": SLEEPS,
}


def pytest_configure() -> None:
    """Substitute the class that `from redis.lock import Lock` finds."""
    redis.lock.Lock = redis_lock_client.Lock  # type: ignore[misc]
    redis.asyncio.lock.Lock = redis_lock_client.asyncio.Lock  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect the failure of each test that does not apply: one that passes, or is gone, is an error."""
    seen = set()
    for item in items:
        name = f"{item.path.parent.name}/{item.name.split('[')[0]}"
        if reason := NOT_APPLYING.get(name):
            seen.add(name)
            # For this reason, and no other.
            raises = AssertionError if reason == SLEEPS else ResponseError
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason, raises=raises))
    if unknown := set(NOT_APPLYING) - seen:
        raise pytest.UsageError(f"tests that do not apply and are not there: {sorted(unknown)}")


def main() -> int:
    # Theirs have the same name in the runs.
    from tests.server import running, versions

    shutil.rmtree(FOLDER, ignore_errors=True)
    options = ["--quiet", "--no-deps", "--no-binary", "redis", "--dest", str(FOLDER)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, f"redis=={redis.__version__}"], check=True)
    shutil.unpack_archive(next(FOLDER.iterdir()), FOLDER)
    (folder,) = filter(Path.is_dir, FOLDER.iterdir())
    codes = []
    for version in versions():
        with running(version) as server:
            code, numbers = run(folder, server.url)
        print(f"redis-py {redis.__version__} on {version:<14} {numbers}", flush=True)
        codes.append(code)
    return int(any(codes))


def run(folder: Path, url: str) -> tuple[int, str]:
    """Run the tests, and return pytest's exit status and its last line."""
    options = ["-p", "scripts.peer_suite", "-q", "-rfE", "--tb=short", f"--redis-url={url}"]
    # Their `-s` and their markers of warnings are not of interest here.
    options += ["-o", "addopts=", "-p", "no:warnings", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    command = [sys.executable, "-m", "pytest", *options, *FILES]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr]
    if done.returncode != 0:
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode, re.sub(r"=+ ?| ?=+", "", lines[-1])


if __name__ == "__main__":
    sys.exit(main())
