"""Draws the plots of a folder from its results.tsv, libraries.tsv and oversell.tsv: plots.py FOLDER."""

import sys
from functools import partial
from pathlib import Path

import libraries
import oversell
import results
from figures import Figures
from theme import finish, themes, write

# Name: file, the first words of its rows, and what draws them.
PLOTS = {
    "owner": ("results.tsv", ["owner"], results.owner),
    "contention-0ms": ("results.tsv", ["contention"], partial(results.contention, hold_ms=0)),
    "contention-1ms": ("results.tsv", ["contention"], partial(results.contention, hold_ms=1)),
    "handoff": ("results.tsv", ["handoff"], results.handoff),
    "growth": ("results.tsv", ["growth"], results.growth),
    "growth-contended": ("results.tsv", ["growth"], results.growth_contended),
    "places": ("results.tsv", ["places"], results.places),
    "libraries": ("libraries.tsv", [], libraries.rates),
    "oversell": ("oversell.tsv", [], oversell.ways),
}


def main():
    folder = Path(sys.argv[1])
    drawn = set()
    for theme in themes():
        for name, (file, words, draw) in PLOTS.items():
            figures = Figures(folder / file, *words)
            # A short run has measured only some of it.
            if not figures.rows or any(not figures.part(word).rows for word in words):
                continue
            plot = draw(figures, theme)
            if plot is None:
                continue
            figure, finding, note, legend, *columns = plot
            finish(figure, theme, finding, note, legend, *columns)
            write(figure, theme, folder / name, figures.source)
            drawn.add(name)
    print(f"plots: {len(drawn)} in {folder}")


main()
