"""Builds the sdist and the wheel, checks them, and uses them: `make dist`. Uploads nothing.

With `--beside` it also installs them beside packages that pin older versions of redis-py: `make installs`.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from tests.server import running, versions

HERE = Path(__file__).parents[1]
DIST = HERE / "dist"

# What stands in a fresh environment beside the wheel.
CLIENTS = ("redis", "valkey")
BESIDE = ("redis==6.4.0", "redis==7.1.0", "redis==8.1.0", "celery[redis]")

TAKE_A_LOCK = """
import sys
from importlib.metadata import version
from redis_lock_client import Lock
from redis_lock_client.libraries import INSTALLED
(library,) = map(sys.modules.get, INSTALLED)
with Lock(library.from_url(sys.argv[1]), "stock", timeout=30) as lock:
    assert lock.fence > 0 and lock.check() == lock.fence
print(f"redis-lock-client {version('redis-lock-client')} with {library.__name__} {library.__version__}: took a lock")
"""


def main() -> None:
    for old in DIST.glob("*"):
        old.unlink()
    run("-m", "build", "--outdir", str(DIST), str(HERE))
    sdist, wheel = next(DIST.glob("*.tar.gz")), next(DIST.glob("*.whl"))
    print(run("-m", "twine", "check", "--strict", str(sdist), str(wheel)).strip())
    with tarfile.open(sdist) as archive:
        contents = {sdist: archive.getnames(), wheel: zipfile.ZipFile(wheel).namelist()}
    for path, names in contents.items():
        print(f"{path.name}, {path.stat().st_size:,} bytes:", *sorted(names), sep="\n    ")
        for needed in ("LICENSE-MIT", "LICENSE-APACHE"):
            assert any(name.endswith(needed) for name in names), f"{needed} is not in {path.name}"
    with running(versions()[-1]) as server:
        for package in (*CLIENTS, *(BESIDE if "--beside" in sys.argv else ())):
            print(f"{package}: {install_and_use(wheel, package, server.url)}", flush=True)
        # Of an sdist the wheel is built where it is installed.
        print(f"from the sdist: {install_and_use(sdist, 'redis', server.url)}")
    print("Would be uploaded, and was not:", *sorted(path.name for path in DIST.iterdir()))


def install_and_use(artifact: Path, package: str, url: str) -> str:
    """Install into a fresh environment, together in one step, and take a lock there."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        pip = ("-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "--quiet", str(artifact), package, python=python)
        run(*pip, "check", python=python)
        return run("-c", TAKE_A_LOCK, url, python=python, folder=folder).strip()


def run(*arguments: str, python: Path | str = sys.executable, folder: str | None = None) -> str:
    """Run Python, and return what it printed."""
    # Not the package in the source folder, but the one that is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(python), *arguments], capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    main()
