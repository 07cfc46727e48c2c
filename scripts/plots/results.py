"""The plots of results.tsv, which `make bench` writes. Each answers a figure, what it finds, a note, and its legend."""

import re

import matplotlib.pyplot as plt
from figures import between, by_number, spread
from theme import INK, OURS, WIDTH, from_zero, line, log_axis

MEDIANS = "Points are medians of the rounds, bars the smallest and the largest."
# As results.tsv names them, in the order of the legend.
PROTOCOLS = {
    "LOCK.ACQUIRE BLOCK": (OURS, "LOCK.ACQUIRE … BLOCK (this module)"),
    "BLPOP / LPUSH ceiling": ("BLPOP / LPUSH", "BLPOP and LPUSH, no lock"),
    "BLPOP signal": ("BLPOP signal", "SET NX, BLPOP as a signal"),
    "poll 1 ms": ("poll 1 ms", "SET NX, polling every 1 ms"),
    "poll 10 ms": ("poll 10 ms", "SET NX, polling every 10 ms"),
    "poll 100 ms": ("poll 100 ms", "SET NX, polling every 100 ms"),
}


def per_server(figures, height=3.9):
    servers = figures.values("server")
    figure, axes = plt.subplots(1, len(servers), figsize=(WIDTH, height), sharey=True, squeeze=False)
    for axis, server in zip(axes[0], servers, strict=True):
        axis.set_title(server)
    return figure, {axis: figures.of("server", server) for axis, server in zip(axes[0], servers, strict=True)}


def pair(axis, theme, rows, pattern, ours, theirs, rival, aside):
    """A line of this module and one of a rival, beside each other. Returns the points of both."""
    drawn = []
    for measure, name, factor in ((ours, OURS, 1 - aside), (theirs, rival, 1 + aside)):
        drawn.append(by_number(rows, measure, pattern))
        if drawn[-1]:
            line(axis, theme, name, [(at * factor, *spread(row)) for at, row in drawn[-1]])
    return drawn


def legend(axis, *labels):
    return axis.get_legend_handles_labels()[0], labels


def contention(figures, theme, hold_ms):
    # The server on which polling was measured, too.
    server = next((row["server"] for row in figures.rows if row["subject"].startswith("poll")), None)
    if server is None:
        return None
    rows = figures.of("server", server)
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 4.6), sharey=True)
    titles = {"hand-offs/s": "Hand-offs: the next one is another client", "acquisitions/s": "All acquisitions"}
    medians = {}
    for axis, (measure, title) in zip(axes, titles.items(), strict=True):
        for nth, (protocol, (name, label)) in enumerate(PROTOCOLS.items()):
            points = by_number(rows, measure, rf"{re.escape(protocol)}, (\d+) clients, held {hold_ms} ms")
            medians[measure, protocol] = {clients: spread(row)[0] for clients, row in points}
            # Beside each other, so that spreads of the same number of clients do not hide each
            # other. Zero is no place of such an axis.
            aside = 1.05 ** (nth - 2.5)
            points = [(clients * aside, *(max(value, 0.3) for value in spread(row))) for clients, row in points]
            line(axis, theme, name, points, label)
        log_axis(axis.xaxis, "clients that want the lock", sorted(medians[measure, "LOCK.ACQUIRE BLOCK"]), 2)
        log_axis(axis.yaxis, measure)
        axis.set_title(title)
        axis.yaxis.set_tick_params(labelleft=True)
    ours, polled = (medians["hand-offs/s", one] for one in ("LOCK.ACQUIRE BLOCK", "poll 10 ms"))
    clients = 16 if 16 in ours else min(ours)
    finding = (
        f"{clients} clients, one lock: this module hands it on {ours[clients]:,.0f} times a second, "
        f"polling (10 ms) {polled[clients]:,.0f} times"
    )
    shares = [
        medians["hand-offs/s", one][clients] / taken
        for one in PROTOCOLS if one.startswith("poll")
        for clients, taken in medians["acquisitions/s", one].items()
    ]  # fmt: skip
    finding += "" if max(shares) > 0.5 else ", as a client that polls mostly has it again itself"
    note = f"{server}, the lock held for {hold_ms} ms. {MEDIANS} Polling was measured in one round. SET NX is given back by a script."
    return figure, finding, note, axes[0].get_legend_handles_labels()


def handoff(figures, theme):
    figure, axes = per_server(figures)
    medians, ratios = [], []
    for axis, rows in axes.items():
        ours, _ = pair(axis, theme, rows, r"(\d+) waiters", "grant p50 µs", "BLPOP p50 µs", "BLPOP / LPUSH", 0.04)
        medians += [spread(row)[0] for _, row in ours]
        ratios += [spread(row)[0] for row in rows if row["measure"] == "release to the next grant against BLPOP's wake-up, p50"]
        log_axis(axis.xaxis, "waiters", [waiters for waiters, _ in ours])
    from_zero(axes)
    first = next(iter(axes))
    first.set_ylabel("µs from the release to the reply, p50")
    finding = (
        f"The next waiter has its reply {between(medians, 0)} µs after the release: "
        f"{between(ratios)} times what BLPOP takes to wake up"
    )
    return figure, finding, MEDIANS, legend(first, "LOCK.RELEASE to the grant (this module)", "LPUSH to BLPOP's reply, no lock")


def owner(figures, theme):
    work = {
        "ACQUIRE + RELEASE": ("LOCK.ACQUIRE + LOCK.RELEASE (this module)", OURS),
        "SET + DEL": ("SET NX PX + DEL, no owner check", "SET + DEL"),
        "SET + EVALSHA": ("SET NX PX + a script that compares and deletes", "SET + EVALSHA"),
        "PING twice": ("PING twice", "PING"),
    }
    servers = figures.values("server")
    figure, axis = plt.subplots(figsize=(WIDTH, 4.2))
    wide = 0.84 / len(work)
    for nth, (what, (label, name)) in enumerate(work.items()):
        found = [spread(row) for row in figures.of("subject", f"{what} -P 16")]
        places = [at + (nth - 1.5) * wide for at in range(len(found))]
        medians = [one[0] for one in found]
        axis.bar(places, medians, wide * 0.94, color=theme.colour(name), label=label)
        ends = [[one[0] - one[1] for one in found], [one[2] - one[0] for one in found]]
        axis.errorbar(places, medians, yerr=ends, fmt="none", ecolor=theme.ink, elinewidth=1.2, capsize=3)
        # At the foot, where no spread crosses it. Dark letters are read on all of the colours.
        for place, value in zip(places, medians, strict=True):
            axis.annotate(f"{value:.1f}", (place, 0), (0, 5), textcoords="offset points", ha="center", color=INK["light"])
    axis.set_xticks(range(len(servers)), servers)
    axis.tick_params(axis="x", length=0)
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("µs of the server's CPU per pair")

    def against(rival):
        rows = figures.of("measure", f"acquire + release against {rival}, server CPU")
        return between([spread(row)[0] for row in rows if row["subject"] == "-P 16"])

    finding = (
        f"To take a lock and give it back costs {against('SET + DEL')} times the CPU of SET and DEL, "
        f"and {against('SET + EVALSHA')} times that of SET and a script"
    )
    note = (
        "16 commands in a pipeline, 16 connections. Bars are medians of the rounds, with the smallest and the largest; "
        "a ratio is the median of those within each round."
    )
    return figure, finding, note, axis.get_legend_handles_labels(), 2
