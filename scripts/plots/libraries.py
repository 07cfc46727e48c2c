"""The plot of libraries.tsv, which `make bench-peers` writes."""

import matplotlib.pyplot as plt
from figures import spread
from matplotlib.lines import Line2D
from theme import COLOURS, OURS, WIDTH, log_axis

SIZES = [6, 9, 12]
MEASURES = {"hand-offs/s": "Hand-offs to another client", "acquisitions/s": "All acquisitions"}
LEAST = 0.05  # stands for zero


def name_of(library):
    """The library without its version: that is how it has its colour."""
    return next(name for name in COLOURS if library.startswith(name))


def rates(figures, theme):
    holds = sorted(int(hold) for hold in figures.values("hold ms"))
    # As `holds::charted` in benches/libraries/holds.rs.
    hold = 1 if 1 in holds else holds[0]
    rows = figures.of("hold ms", str(hold))
    clients = sorted({int(row["clients"]) for row in rows})
    places, heads, down = {}, {}, 0.0
    for language in figures.values("language", rows):
        heads[language] = down
        for library in figures.values("library", [row for row in rows if row["language"] == language]):
            down += 1
            places[library] = down
        down += 1.35
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 0.36 * down + 1.7), sharex=True, sharey=True)
    medians = {}
    for axis, (measure, title) in zip(axes, MEASURES.items(), strict=True):
        for row in (row for row in rows if row["measure"] == measure):
            name, nth = name_of(row["library"]), clients.index(int(row["clients"]))
            median, low, high = (max(value, LEAST) for value in spread(row))
            medians[measure, row["library"], row["clients"]] = median
            # The fewer clients, the smaller and the higher.
            at = places[row["library"]] + (nth - (len(clients) - 1) / 2) * 0.24
            axis.errorbar(
                median, at, xerr=[[median - low], [high - median]], color=theme.colour(name), marker="o", markersize=SIZES[nth % 3],
                elinewidth=2, capsize=0, alpha=0.9,
            )  # fmt: skip
        log_axis(axis.xaxis, measure)
        axis.set_title(title)
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_ylim(down - 0.4, -0.6)
    axes[0].set_yticks([*places.values(), *heads.values()], [*places, *heads])
    for label in axes[0].get_yticklabels():
        mine = label.get_text()
        if mine in places:
            label.set_color(theme.colour(OURS) if name_of(mine) == OURS else theme.ink)
        label.set_fontweight("bold" if mine not in places or name_of(mine) == OURS else "normal")
    shares = {}
    for (measure, library, count), taken in medians.items():
        if measure == "acquisitions/s":
            shares.setdefault(library, []).append(medians["hand-offs/s", library, count] / taken)
    rivals = [library for library in shares if name_of(library) != OURS]
    alone = [library for library in rivals if max(shares[library]) < 0.5]
    ours = min(min(shares[library]) for library in shares if library not in rivals)
    finding = (
        f"With this module's adapters {'every acquisition' if ours > 0.995 else f'{100 * ours:.0f} % of the acquisitions'} is a hand-off; "
        f"with {len(alone)} of {len(rivals)} other libraries one client mostly takes the lock again"
    )
    note = (
        f"{rows[0]['server']}, the lock held for {hold} ms. Points are medians of the rounds, with the smallest and the largest. "
        f"A value below {LEAST} is drawn there."
    )
    handles = [Line2D([], [], color=theme.muted, marker="o", linestyle="", markersize=size) for size in SIZES[: len(clients)]]
    return figure, finding, note, (handles, [f"{count} clients" for count in clients])
