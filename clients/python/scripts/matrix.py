"""Runs the tests with each version of the client libraries, into MATRIX.tsv: `make matrix`.

python -m scripts.matrix [LIBRARY==VERSION…]      only these, and MATRIX.tsv stays as it is
"""

import os
import re
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parents[1]
FOLDER = HERE / ".matrix"
TOOLS = ("pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-timeout==2.4.0")

# The floor, what other packages pin, and the newest of each line.
ROWS = [
    "redis==6.4.0",
    "redis[hiredis]==6.4.0",
    "redis==7.1.0",
    "redis==7.4.1",
    "redis==8.1.0",
    "valkey==6.0.2",
    "valkey==6.1.1",
    "valkey==6.2.0",
]
HEAD = "LANG\tlibrary\tversion\tpassed\tfailed\tskipped\n"


def main() -> int:
    with ThreadPoolExecutor(int(os.environ.get("MATRIX_JOBS", "2"))) as pool:
        rows = list(pool.map(run, sys.argv[1:] or ROWS))
    if not sys.argv[1:]:
        (HERE / "MATRIX.tsv").write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return int(any(row.split("\t")[4] != "0" for row in rows))


def run(row: str) -> str:
    """Run the tests in an environment of their own. Print and return how many passed, failed, and were skipped."""
    library, version = row.split("==")
    folder = FOLDER / re.sub(r"\W+", "-", row)
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-e", str(HERE), row, *TOOLS], check=True)
        ready.touch()
    environment = os.environ | {"CLIENT_LIBRARY": library.split("[")[0], "TEST_PATIENCE": "3"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=native", "-rfE", "-o", "timeout=180"]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    (folder / "log").write_text(done.stdout + done.stderr)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    count = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    # It may have ended before there was a test.
    failed = count.get("failed", 0) + count.get("error", 0) or int(done.returncode != 0)
    told = f"python\t{library}\t{version}\t{count.get('passed', 0)}\t{failed}\t{count.get('skipped', 0)}"
    print(told, flush=True)
    return told


if __name__ == "__main__":
    sys.exit(main())
