#!/usr/bin/env python3
"""Writes the tables of docs/COMPATIBILITY.md from clients/*/MATRIX.tsv, which `make test-matrix` writes.

    scripts/matrix.py            writes them
    scripts/matrix.py --check    ends with 1 where they are not what the files say
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
BEGIN, END = "<!-- The tables are written by scripts/matrix.py. -->\n", "<!-- The end of the tables. -->\n"
TITLES = {"python": "Python", "node": "Node", "go": "Go", "java": "Java", "rust": "Rust"}


def tables() -> str:
    """A table per language, in the order of its file."""
    parts = []
    for language, title in TITLES.items():
        folder = ROOT / "clients" / language
        # Integrations in folders of their own have files of their own.
        files = [file for file in (folder / "MATRIX.tsv", *sorted(folder.glob("*/MATRIX.tsv"))) if file.is_file()]
        parts.append(f"### {title}\n\n")
        if not files:
            parts.append("Not measured yet.\n\n")
            continue
        parts.append("| library | version | passed | failed | skipped |\n| --- | --- | --- | --- | --- |\n")
        for line in "\n".join(file.read_text() for file in files).splitlines():
            fields = line.split("\t")
            # A heading, or a comment.
            if len(fields) < 6 or not fields[3].isdigit():
                continue
            parts.append("| " + " | ".join(fields[1:6]) + " |\n")
        parts.append("\n")
    return "".join(parts)


def main() -> None:
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    written = before + BEGIN + "\n" + tables() + END + after
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(written)
    elif written != page:
        sys.exit("matrix: docs/COMPATIBILITY.md is not what clients/*/MATRIX.tsv say: run scripts/matrix.py")


main()
