"""Runs the tests with each version of the client libraries: `make matrix`. Writes MATRIX.tsv."""

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
ROWS = (
    ("redis", "6.4.0"),
    ("redis[hiredis]", "6.4.0"),
    ("redis", "7.1.0"),
    ("redis", "7.4.1"),
    ("redis", "8.1.0"),
    ("valkey", "6.0.2"),
    ("valkey", "6.1.1"),
    ("valkey", "6.2.0"),
)
HEAD = "LANG\tlibrary\tversion\tpassed\tfailed\tskipped\n"


def main() -> int:
    """Run all rows, or those whose `library==version` is an argument: `python -m scripts.matrix redis==6.4.0`."""
    chosen = [row for row in ROWS if not sys.argv[1:] or "==".join(row) in sys.argv[1:]]
    with ThreadPoolExecutor(int(os.environ.get("MATRIX_JOBS", "2"))) as pool:
        results = list(pool.map(lambda row: run(*row), chosen))
    note(dict(zip(chosen, results, strict=True)))
    return int(any(result.split("\t")[1] != "0" for result in results))


def note(results: dict[tuple[str, str], str]) -> None:
    """Write the rows. Those that have not run this time stay as they were."""
    file = HERE / "MATRIX.tsv"
    lines = [line.split("\t", 3) for line in file.read_text().splitlines()[1:]] if file.exists() else []
    known = {(library, version): result for _, library, version, result in lines} | results
    rows = [
        f"python\t{library}\t{version}\t{known[library, version]}\n"
        for library, version in ROWS
        if (library, version) in known
    ]
    file.write_text(HEAD + "".join(rows))


def run(library: str, version: str) -> str:
    """Run the tests in an environment of their own. Print and return how many passed, failed, and were skipped."""
    name = f"{library}-{version}".replace("[", "-").replace("]", "")
    python = FOLDER / name / "bin" / "python"
    if not (FOLDER / f"{name}.ready").exists():
        venv.create(FOLDER / name, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-e", str(HERE), f"{library}=={version}", *TOOLS], check=True)
        (FOLDER / f"{name}.ready").touch()
    environment = os.environ | {"CLIENT_LIBRARY": library.split("[")[0], "TEST_PATIENCE": "3"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=native", "-rfE", "-o", "timeout=180"]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    log = done.stdout + done.stderr
    passed, failed, skipped = numbers(done)
    (FOLDER / f"{name}.log").write_text(log)
    result = f"{passed}\t{failed}\t{skipped}"
    print(f"python\t{library}\t{version}\t{result}", flush=True)
    return result


def numbers(done: "subprocess.CompletedProcess[str]") -> tuple[int, int, int]:
    """Return how many passed, failed and were skipped by pytest's last line."""
    found = re.findall(r"(\d+) (passed|failed|skipped|error)", (done.stdout.strip().splitlines() or [""])[-1])
    count = {word: int(number) for number, word in found}
    failed = count.get("failed", 0) + count.get("error", 0)
    # It may have ended before there was a test.
    return count.get("passed", 0), failed or int(done.returncode != 0), count.get("skipped", 0)


if __name__ == "__main__":
    sys.exit(main())
