"""The plot of once.tsv, which `make -C clients/python bench-once` writes."""

import matplotlib.pyplot as plt
from figures import spread
from matplotlib.lines import Line2D
from theme import NARROW, OURS, log_axis

WAYS = {"once": OURS, "pubsub": "Pub/Sub", "polling": "polling"}
LABELS = ["LOCK.ONCE", "a lock and Pub/Sub", "a lock, and a look each 50 ms"]
SITUATIONS = {
    "cold": "nothing fails",
    "failing": "the first maker fails",
    "killed": "it is killed",
    "silent": "it falls silent",
}


def crowd(figures, theme):
    rows = figures.of("bytes", "100")

    def told(way, situation, name):
        keys = {"way": way, "situation": situation, "figure": name}
        return spread(next(row for row in rows if keys.items() <= row.items()))

    figure, axis = plt.subplots(figsize=(NARROW, 4.4))
    for down, situation in enumerate(SITUATIONS):
        for nth, (way, name) in enumerate(WAYS.items()):
            median, low, high = told(way, situation, "all answered after ms")
            at = down + (nth - 1) * 0.25
            axis.errorbar(
                median, at, xerr=[[median - low], [high - median]], color=theme.colour(name), marker="o", markersize=8,
                elinewidth=2, capsize=0,
            )  # fmt: skip
            made = f"{told(way, situation, 'values made')[0]:,.0f} made"
            axis.annotate(made, (high, at), (8, 0), textcoords="offset points", va="center", fontsize=9.5)
    log_axis(axis.xaxis, "ms until all are answered", [500, 1_000, 2_000, 4_000], end=5_500)
    axis.set_yticks(range(len(SITUATIONS)), SITUATIONS.values())
    axis.set_ylim(len(SITUATIONS) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    once, pubsub = (max(told(way, it, "values made")[2] for it in SITUATIONS) for way in ("once", "pubsub"))
    often = {1: "once", 2: "at most twice"}.get(once, f"at most {once:.0f} times")
    finding = f"1,000 clients want one value: with LOCK.ONCE it is made {often}, with Pub/Sub up to {pubsub:,.0f} times"
    note = (
        "The making takes 500 ms. A lock without a sign of life ends after 3 s, and with Pub/Sub nobody hears of a maker that fails. "
        "Points are medians of the rounds, with the smallest and the largest."
    )
    handles = [Line2D([], [], color=theme.colour(name), marker="o", linestyle="", markersize=8) for name in WAYS.values()]
    return figure, finding, note, (handles, LABELS), 2
