"""The look of all plots: themes, colours, sizes, and how a picture is written."""

import re
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of what draws)
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

# GitHub's own colours.
GROUND = {"light": "#ffffff", "dark": "#0d1117"}
INK = {"light": "#1f2328", "dark": "#f0f6fc"}
MUTED = {"light": "#59636e", "dark": "#9198a1"}
GRID = {"light": "#d1d9e0", "dark": "#3d444d"}

OURS = "redis-lock"
# A rival has one colour in all plots. A protocol shares it with the library that uses it.
COLOURS = {
    OURS: ("#d55e00", "#d55e00"),
    "PING": ("#afb8c1", "#9198a1"),
    "BLPOP / LPUSH": ("#57606a", "#b1bac4"),
    "BLPOP signal": ("#0072b2", "#4c9be8"),
    "Pub/Sub": ("#0072b2", "#4c9be8"),
    "SET + DEL": ("#56b4e9", "#56b4e9"),
    "PEXPIRE": ("#56b4e9", "#56b4e9"),
    "SET + EVALSHA": ("#009e73", "#2dbe93"),
    "poll 1 ms": ("#009e73", "#2dbe93"),
    "poll 10 ms": ("#a04fb5", "#c583d8"),
    "poll 100 ms": ("#b08800", "#d8b433"),
    "polling": ("#b08800", "#d8b433"),
    "SETNX": ("#b08800", "#d8b433"),
    "WATCH": ("#a04fb5", "#c583d8"),
    "no lock": ("#818b98", "#9198a1"),
    "python-redis-lock": ("#0072b2", "#4c9be8"),
    "redis-py": ("#117733", "#44aa77"),
    "node-redlock": ("#882255", "#cc6699"),
    "bsm/redislock": ("#8a8a1f", "#c2c24d"),
    "redsync": ("#332288", "#8f83e0"),
    "Redisson": ("#2a8c82", "#44aa99"),
}
MARKERS = {
    OURS: "o",
    "BLPOP / LPUSH": "s",
    "BLPOP signal": "D",
    "SET + DEL": "s",
    "poll 1 ms": "^",
    "poll 10 ms": "v",
    "poll 100 ms": "<",
}
THICK, THIN = 3.0, 1.8

WIDTH = 8.33  # inches: 800 pixels on a page
NARROW = 5.4  # its words are readable on a telephone
EDGE = 0.008  # of the width
# Those of a page are narrower than that of matplotlib, with which the layout is made.
FONTS = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


class Theme:
    def __init__(self, name):
        self.name, self.ink, self.muted = name, INK[name], MUTED[name]

    def colour(self, name):
        return COLOURS[name][self.name == "dark"]

    def line(self, name):
        """How the line of a subject is drawn. Ours is the thickest, and lies below those that would hide behind it."""
        ours = name == OURS
        return {
            "color": self.colour(name),
            "linewidth": THICK if ours else THIN,
            "marker": MARKERS.get(name, "o"),
            "markersize": 7 if ours else 6,
            "linestyle": "--" if name == "BLPOP / LPUSH" else "-",
            "capsize": 3,
            "elinewidth": 1.2,
            "zorder": 3 if ours else 4,
        }


def themes():
    for name in ("light", "dark"):
        ink, muted, grid = INK[name], MUTED[name], GRID[name]
        plt.rcdefaults()
        plt.rcParams.update({
            "font.family": "DejaVu Sans", "font.size": 10, "legend.fontsize": 10, "legend.frameon": False,
            "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.grid": True,
            "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "grid.linewidth": 0.7,
            "hatch.linewidth": 1.4, "svg.fonttype": "none", "svg.hashsalt": "redis-lock", "grid.color": grid,
            "axes.edgecolor": muted, "xtick.color": muted, "ytick.color": muted, "axes.labelcolor": ink,
            "axes.titlecolor": ink, "text.color": ink, "xtick.labelcolor": ink, "ytick.labelcolor": ink,
        })  # fmt: skip
        yield Theme(name)


def number(value):
    """1, 10, 1k, 10k, 1M"""
    for unit, of in (("M", 1e6), ("k", 1e3)):
        if value >= of:
            return f"{value / of:g}{unit}"
    return f"{value:g}"


def log_axis(axis, unit, ticks=None, base=10, end=None):
    """A logarithmic axis with ticks where the values are, if they are few. `end` is the last value, if not a tick."""
    axis.axes.set_xscale("log", base=base) if axis.axis_name == "x" else axis.axes.set_yscale("log", base=base)
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if ticks:
        axis.set_major_locator(FixedLocator(ticks))
        low, high = min(ticks) / 1.7, (end or max(ticks)) * 1.7
        axis.axes.set_xlim(low, high) if axis.axis_name == "x" else axis.axes.set_ylim(low, high)
    axis.set_minor_locator(NullLocator())
    axis.set_label_text(f"{unit} (log scale)")


def from_zero(all_axes):
    """Linear axes of values begin at 0. After all is drawn, as axes that share one share its end, too."""
    for axes in all_axes:
        axes.set_ylim(0, None)


def line(axes, theme, name, points, label=None, **more):
    """Points are (x, median, low, high)."""
    xs, medians, lows, highs = zip(*sorted(points), strict=True)
    below = [median - low for median, low in zip(medians, lows, strict=True)]
    above = [high - median for median, high in zip(medians, highs, strict=True)]
    axes.errorbar(xs, medians, yerr=[below, above], label=label or name, **{**theme.line(name), **more})


def wrapped(text, most):
    """In as few lines as fit, and those about as long as each other."""
    count = len(textwrap.wrap(text, most))
    return next(textwrap.fill(text, width) for width in range(1, most + 1) if len(textwrap.wrap(text, width)) == count)


def finish(figure, theme, finding, note, legend=None, columns=3):
    """Puts the finding above the plots, the legend below it, and the note at the bottom. What they need is measured."""
    height = figure.get_figheight() * figure.dpi
    wide = figure.get_figwidth() / WIDTH

    def share(artist):
        return artist.get_window_extent().height / height

    gap = 8 / height
    top = 1 - gap / 2
    title = figure.text(EDGE, top, wrapped(finding, int(84 * wide)), fontsize=12, fontweight="bold", va="top", linespacing=1.3)
    top -= share(title) + 1.5 * gap
    if legend:
        handles, labels = legend
        drawn = figure.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(EDGE, top), ncols=columns, borderaxespad=0, borderpad=0.2,
            columnspacing=1.6, handlelength=2.4,
        )  # fmt: skip
        top -= share(drawn) + gap
    below = figure.text(EDGE, gap / 2, wrapped(note, int(136 * wide)), fontsize=9, color=theme.muted, va="bottom", linespacing=1.3)
    bottom = share(below) + 1.5 * gap
    figure.set_layout_engine("constrained", rect=(0, bottom, 1, top - bottom), h_pad=0.06, w_pad=0.08)
    # Rotated labels begin where they are told, whatever letters the page has.
    for axes in figure.axes:
        axes.yaxis.label.set_rotation_mode("anchor")


def write(figure, theme, path: Path, source):
    """Writes NAME.svg or NAME-dark.svg. `source` says what was drawn."""
    path = path.with_suffix(".svg") if theme.name == "light" else path.with_name(f"{path.name}-dark.svg")
    for axes in figure.axes:
        axes.patch.set_visible(False)
    # The page around it may have the other theme.
    ground = GROUND[theme.name]
    figure.savefig(path, facecolor=ground, metadata={"Date": None, "Creator": None, "Description": source})
    plt.close(figure)
    text = path.read_text()
    text = re.sub(r"'DejaVu Sans'(, sans-serif)?", FONTS, text)
    # Smaller, and the same to the eye.
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r' id="\w+[._][\w.]*_?\d+"', "", text)
    text = re.sub(r"(?<=\d\.\d\d)\d+", "", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    path.write_text(text)
    return path
