"""A misspelt option is found by a type checker."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent
WRONG = Path("tests/types/wrong.py")


# Without a cache mypy reads all of redis-py first.
@pytest.mark.timeout(180)
@pytest.mark.skipif(find_spec("mypy") is None, reason="no mypy beside this version of the library")
def test_mypy_finds_each_misspelt_option_and_nothing_else() -> None:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(WRONG)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    found = re.findall(rf"^{WRONG}:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    lines = (FOLDER / WRONG).read_text().splitlines()
    expected = [number for number, line in enumerate(lines, start=1) if "# wrong: " in line]
    assert sorted({int(number) for number, _ in found}) == expected, done.stdout + done.stderr
    for number, error in found:
        option = lines[int(number) - 1].split("# wrong: ")[1]
        assert f'"{option}"' in error
