"""The plot of oversell.tsv, which `make oversell` writes."""

import math

import matplotlib.pyplot as plt
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from theme import OURS, WIDTH, number

# By the letter of the way.
NAMES = {"(a)": "no lock", "(b)": "WATCH", "(c)": "SETNX", "(d)": "SET + EVALSHA"}
KINDS = ["no lock, no check", "no lock; the write is checked", "lock only", "lock, and the write is checked"]


def kind_of(row):
    return KINDS[2 * (row["lock"] == "yes") + (row["check"] != "none")]


def style(theme, row, colour):
    """What protects tells a bar: an empty one has neither lock nor check, stripes are one of the two, a full one is both."""
    kind = KINDS.index(kind_of(row))
    fill = {0: "none", 1: "none", 2: "none", 3: colour}[kind]
    hatch = {0: None, 1: "|||", 2: "///", 3: None}[kind]
    return {"facecolor": fill, "edgecolor": colour, "hatch": hatch, "linewidth": 1.6}


def ways(figures, theme):
    rows = figures.rows
    panels = {
        "Oversold, when owners stall": ("oversold when owners stall", "pieces too many", "{:,.0f}"),
        "Oversold, when nobody stalls": ("oversold", "pieces too many", "{:,.0f}"),
        "Commands of the server": ("commands per sale", "commands per sale", "{:.0f}"),
        "Longest wait of a buyer": ("longest wait ms", "ms", "{:,.0f}"),
    }
    figure, grid = plt.subplots(2, 2, figsize=(WIDTH, 0.62 * len(rows) + 1.9), sharey=True)
    names = [row["way"] for row in rows]
    for axis, (title, (column, unit, print_as)) in zip(grid.flat, panels.items(), strict=True):
        values = [float(row[column]) for row in rows]
        for at, (row, value) in enumerate(zip(rows, values, strict=True)):
            colour = theme.colour(NAMES.get(row["way"][:3], OURS))
            axis.barh(at, value or math.nan, 0.62, **style(theme, row, colour))
            axis.annotate(print_as.format(value), (value, at), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
        axis.set_title(title)
        axis.set_xlabel(unit)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.set_xlim(0, max(values) * 1.2 or 1)
        if column.startswith("oversold"):
            axis.set_xscale("symlog", linthresh=10)
            axis.set_xlim(0, max(*values, 10) * 5)
            axis.xaxis.set_major_locator(FixedLocator([0, 10, 100, 1000]))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
            axis.set_xlabel(f"{unit} (log from 10 on)")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
    grid[0][0].set_yticks(range(len(rows)), names)
    grid[0][0].set_ylim(len(rows) - 0.4, -0.6)
    stalled = {kind: [float(row["oversold when owners stall"]) for row in rows if kind_of(row) == kind] for kind in KINDS}
    unchecked = stalled[KINDS[0]] + stalled[KINDS[2]]
    checked = stalled[KINDS[1]] + stalled[KINDS[3]]
    if not any(checked) and all(unchecked):
        finding = "When owners stall, a lock alone oversells; nothing is oversold where the write is checked, too"
    else:
        finding = "How many were oversold in each way, and what it cost"
    first = rows[0]
    note = (
        f"{first['processes']} processes buy a stock of {first['stock']} on {first['server']}. The check is that of a fence (f, h), of the owner (g, LOCK.EXEC), "
        "or that the stock has not changed (b). In (h) 19 of 20 visits only look: their commands and waits are in it, too."
    )
    rows_of = [next(row for row in rows if kind_of(row) == kind) for kind in KINDS]
    handles = [Patch(**style(theme, row, theme.muted)) for row in rows_of]
    return figure, finding, note, (handles, KINDS), 2
