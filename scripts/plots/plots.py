"""Draws the plots of a folder from its TSV files: plots.py FOLDER."""

import sys
from functools import partial
from pathlib import Path

import libraries
import once
import oversell
import results
from figures import Figures
from theme import finish, themes, write

# Name: file, the first word of its rows, and what draws them.
PLOTS = {
    "owner": ("results.tsv", "owner", results.owner),
    "contention-0ms": ("results.tsv", "contention", partial(results.contention, hold_ms=0)),
    "contention-1ms": ("results.tsv", "contention", partial(results.contention, hold_ms=1)),
    "handoff": ("results.tsv", "handoff", results.handoff),
    "libraries": ("libraries.tsv", "", libraries.rates),
    "once": ("once.tsv", "", once.crowd),
    "oversell": ("oversell.tsv", "", oversell.ways),
}

folder = Path(sys.argv[1])
for theme in themes():
    for name, (file, word, draw) in PLOTS.items():
        # A short run has measured only some of it.
        figures = Figures(folder / file, word)
        if figures.rows and (plot := draw(figures, theme)):
            figure, *words = plot
            finish(figure, theme, *words)
            write(figure, theme, folder / name, f"Drawn from {file}")
