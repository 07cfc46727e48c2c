"""The rows of a TSV file, and the part of them that a plot draws."""

from copy import copy
from pathlib import Path

from theme import fnv1a64


class Figures:
    """The rows of a file that begin with one of these words, or all: what a plot may draw."""

    def __init__(self, file: Path, *words: str):
        text = file.read_text() if file.exists() else "\n"
        head, *lines = text.splitlines()
        names = head.split("\t")
        lines = [line for line in lines if not words or line.split("\t", 1)[0] in words]
        self.rows = [dict(zip(names, line.split("\t"), strict=True)) for line in lines]
        # tests/tidy/plots.rs reads this, and computes the same number.
        these = " or ".join(f'"{word}"' for word in words) or "anything"
        number = fnv1a64("".join(f"{line}\n" for line in lines))
        self.source = f"Drawn from {file.name}, the rows that begin with {these}: fnv1a64 {number}"

    def part(self, word):
        """The rows of one of the words."""
        part = copy(self)
        part.rows = [row for row in self.rows if next(iter(row.values())) == word]
        return part

    def of(self, column, value):
        return [row for row in self.rows if row[column] == value]

    def values(self, column, rows=None):
        """The values of a column, in the order of the file."""
        return list(dict.fromkeys(row[column] for row in (self.rows if rows is None else rows)))


def spread(row):
    return tuple(float(row[name]) for name in ("median", "low", "high"))


def between(values, digits=2):
    """`1.02 to 1.10`"""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
