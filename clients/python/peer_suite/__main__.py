"""Runs redis-py's own tests of its locks against ours: `make peer-suite`.

The sdist of the installed redis-py is fetched by pip. Its two files of lock tests run twice on each server: as they
are, and with the few lines translated that look into the lock's string.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import redis

from peer_suite.translation import translate
from tests.server import running, versions

HERE = Path(__file__).parent.parent
FOLDER = HERE / ".peer"
FILES = ["tests/test_lock.py", "tests/test_asyncio/test_lock.py"]


def main() -> int:
    """Print a line of numbers for each run."""
    sources = fetch()
    failed = False
    for version in versions():
        for translated in (False, True):
            with running(version) as server:
                code, numbers = run(sources[translated], server.url, translated)
            what = "translated" if translated else "as it is"
            print(f"redis-py {redis.__version__} on {version:<14} {what:<11} {numbers}", flush=True)
            failed |= code != 0
    return int(failed)


def fetch() -> dict[bool, Path]:
    """Return the folders with redis-py's tests, as they are and translated."""
    archive = FOLDER / f"redis-{redis.__version__}.tar.gz"
    if not archive.exists():
        options = ["--quiet", "--no-deps", "--no-binary", "redis", "--dest", str(FOLDER)]
        command = ["pip", "download", *options, f"redis=={redis.__version__}"]
        subprocess.run([sys.executable, "-m", *command], check=True)
    folders = {False: FOLDER / "as-it-is", True: FOLDER / "translated"}
    for translated, folder in folders.items():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.unpack_archive(archive, folder)
        folders[translated] = next(folder.iterdir())
        if translated:
            translate(folders[translated] / "tests")
    return folders


def run(folder: Path, url: str, translated: bool) -> tuple[int, str]:
    """Run the tests, and return pytest's exit status and its last line."""
    environment = os.environ | {"PYTHONPATH": str(HERE), "PEER_SUITE_TRANSLATED": "1" if translated else ""}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "peer_suite.plugin",
        "-q",
        "-rfE",
        "--tb=short",
        f"--redis-url={url}",
        *FILES,
    ]
    # Their `-s` and their markers of warnings are not of interest here.
    command += ["-o", "addopts=", "-p", "no:warnings", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr]
    if done.returncode != 0:
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode, re.sub(r"=+ ?| ?=+", "", lines[-1])


if __name__ == "__main__":
    sys.exit(main())
