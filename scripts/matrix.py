#!/usr/bin/env python3
"""Writes the versions of docs/COMPATIBILITY.md from clients/*/MATRIX.tsv, which `make test-matrix` writes."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
BEGIN, END = "<!-- scripts/matrix.py writes this. -->\n", "<!-- The end of it. -->\n"

# Integrations in folders of their own have files of their own.
rows: dict[tuple[str, str], tuple[dict[str, None], int]] = {}
for language in ("Python", "Node", "Go", "Java", "Rust"):
    folder = ROOT / "clients" / language.lower()
    for file in (folder / "MATRIX.tsv", *sorted(folder.glob("*/MATRIX.tsv"))):
        for line in file.read_text().splitlines():
            fields = line.split("\t")
            if len(fields) >= 6 and fields[3].isdigit():
                library = fields[1].partition("[")[0]  # Without its extra.
                versions, failed = rows.get((language, library), ({}, 0))
                rows[language, library] = versions | {fields[2]: None}, failed + int(fields[4])

lines = "".join(
    f"- {language}, {library}: {', '.join(versions)}{f'; **{failed} tests failed**' if failed else ''}\n"
    for (language, library), (versions, failed) in rows.items()
)
before, rest = PAGE.read_text().split(BEGIN)
PAGE.write_text(f"{before}{BEGIN}\n{lines}\n{END}{rest.split(END)[1]}")
