#!/usr/bin/env python3
"""Writes the table of docs/COMPATIBILITY.md from clients/*/MATRIX.tsv, which `make test-matrix` writes.

    scripts/matrix.py            writes them
    scripts/matrix.py --check    ends with 1 where they are not what the files say
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
BEGIN, END = "<!-- scripts/matrix.py writes this. -->\n", "<!-- The end of it. -->\n"
TITLES = {"python": "Python", "node": "Node", "go": "Go", "java": "Java", "rust": "Rust"}


def tables() -> str:
    """A row for each library, in the order of the files."""
    parts = ["| client | library | versions | |\n| --- | --- | --- | --- |\n"]
    for language, title in TITLES.items():
        folder = ROOT / "clients" / language
        # Integrations in folders of their own have files of their own.
        files = [file for file in (folder / "MATRIX.tsv", *sorted(folder.glob("*/MATRIX.tsv"))) if file.is_file()]
        versions: dict[str, list[str]] = {}
        failed: dict[str, int] = {}
        for line in "\n".join(file.read_text() for file in files).splitlines():
            fields = line.split("\t")
            # A heading, or a comment.
            if len(fields) < 6 or not fields[3].isdigit():
                continue
            library = fields[1]
            versions.setdefault(library, []).append(fields[2])
            failed[library] = failed.get(library, 0) + int(fields[4])
        for library, all_of in versions.items():
            passed = f"**{failed[library]} failed**" if failed[library] else "all passed"
            parts.append(f"| {title} | {library} | {', '.join(all_of)} | {passed} |\n")
    return "".join(parts) + "\n"


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
