"""The rows of a TSV file, and the part of them that a plot draws."""

import re
from pathlib import Path


class Figures:
    """The rows of a file that begin with this word, or all."""

    def __init__(self, file: Path, word=""):
        head, *lines = (file.read_text() if file.exists() else "\n").splitlines()
        lines = [line for line in lines if not word or line.split("\t", 1)[0] == word]
        self.rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]

    def of(self, column, value):
        return [row for row in self.rows if row[column] == value]

    def values(self, column, rows=None):
        """The values of a column, in the order of the file."""
        return list(dict.fromkeys(row[column] for row in (self.rows if rows is None else rows)))


def by_number(rows, measure, pattern):
    """(number, row) for the rows of a measure whose subject is like the pattern."""
    found = ((re.fullmatch(pattern, row["subject"]), row) for row in rows if row["measure"] == measure)
    return sorted(((int(match[1]), row) for match, row in found if match), key=lambda one: one[0])


def spread(row):
    return tuple(float(row[name]) for name in ("median", "low", "high"))


def between(values, digits=2):
    """`1.02 to 1.10`"""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
