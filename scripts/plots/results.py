"""The plots of results.tsv, which `make bench` writes. Each answers a figure, what it finds, a note, and its legend."""

import re

import matplotlib.pyplot as plt
from figures import between, spread
from theme import INK, OURS, THICK, THIN, WIDTH, from_zero, line, log_axis, number

MEDIANS = "Points are medians of the rounds, bars the smallest and the largest."
# As results.tsv names them, in the order of the legend.
PROTOCOLS = {
    "LOCK.ACQUIRE BLOCK": OURS,
    "BLPOP / LPUSH ceiling": "BLPOP / LPUSH",
    "BLPOP signal": "BLPOP signal",
    "poll 1 ms": "poll 1 ms",
    "poll 10 ms": "poll 10 ms",
    "poll 100 ms": "poll 100 ms",
}
LABELS = {
    "LOCK.ACQUIRE BLOCK": "LOCK.ACQUIRE … BLOCK (this module)",
    "BLPOP / LPUSH ceiling": "BLPOP and LPUSH, no lock",
    "BLPOP signal": "SET NX, BLPOP as a signal",
    "poll 1 ms": "SET NX, polling every 1 ms",
    "poll 10 ms": "SET NX, polling every 10 ms",
    "poll 100 ms": "SET NX, polling every 100 ms",
}


def by_number(rows, pattern):
    """(number, row) for the rows whose subject is like the pattern."""
    found = ((re.fullmatch(pattern, row["subject"]), row) for row in rows)
    return sorted(((int(match[1]), row) for match, row in found if match), key=lambda one: one[0])


def per_server(figures, sharey=True, height=3.9):
    servers = figures.values("server")
    figure, axes = plt.subplots(1, len(servers), figsize=(WIDTH, height), sharey=sharey, squeeze=False)
    for axis, server in zip(axes[0], servers, strict=True):
        axis.set_title(server)
    return figure, dict(zip(servers, axes[0], strict=True))


def contention(figures, theme, hold_ms):
    # The server on which polling was measured, too.
    server = next((row["server"] for row in figures.rows if row["subject"].startswith("poll")), None)
    rows = figures.of("server", server)
    measures = [one for one in ("hand-offs/s", "acquisitions/s") if any(row["measure"] == one for row in rows)]
    if not measures:
        return None
    figure, axes = plt.subplots(1, len(measures), figsize=(WIDTH, 4.6), sharey=True, squeeze=False)
    medians = {}
    for axis, measure in zip(axes[0], measures, strict=True):
        for nth, (protocol, name) in enumerate(PROTOCOLS.items()):
            points = by_number([row for row in rows if row["measure"] == measure], rf"{re.escape(protocol)}, (\d+) clients, held {hold_ms} ms")
            medians[measure, protocol] = {clients: spread(row)[0] for clients, row in points}
            # Beside each other, so that spreads of the same number of clients do not hide each other. Zero is no place of such an axis.
            aside = 1.05 ** (nth - 2.5)
            line(axis, theme, name, [(clients * aside, *(max(value, 0.3) for value in spread(row))) for clients, row in points], LABELS[protocol])
        log_axis(axis.xaxis, "clients that want the lock", sorted(medians[measure, "LOCK.ACQUIRE BLOCK"]), 2)
        log_axis(axis.yaxis, measure)
        axis.set_title({"hand-offs/s": "Hand-offs: the next one is another client", "acquisitions/s": "All acquisitions"}[measure])
        axis.yaxis.set_tick_params(labelleft=True)
    ours, polled = (medians["hand-offs/s", one] for one in ("LOCK.ACQUIRE BLOCK", "poll 10 ms"))
    clients = 16 if 16 in ours else min(ours)
    finding = (
        f"{clients} clients, one lock: this module hands it on {ours[clients]:,.0f} times a second, "
        f"polling (10 ms) {polled[clients]:,.0f} times"
    )
    if len(measures) == 2:
        shares = [
            medians["hand-offs/s", one][clients] / taken
            for one in PROTOCOLS if one.startswith("poll")
            for clients, taken in medians["acquisitions/s", one].items()
        ]  # fmt: skip
        finding += "" if max(shares) > 0.5 else ", as a client that polls mostly has it again itself"
    note = f"{server}, the lock held for {hold_ms} ms. {MEDIANS} Polling was measured in one round. " + (
        "SET NX is given back by a script."
    )
    return figure, finding, note, axes[0][0].get_legend_handles_labels()


def handoff(figures, theme):
    figure, axes = per_server(figures)
    ours, ratios = [], []
    for server, axis in axes.items():
        rows = figures.of("server", server)
        for measure, name, aside in (("grant p50 µs", OURS, 0.96), ("BLPOP p50 µs", "BLPOP / LPUSH", 1.04)):
            points = by_number([row for row in rows if row["measure"] == measure], r"(\d+) waiters")
            line(axis, theme, name, [(waiters * aside, *spread(row)) for waiters, row in points])
            if name == OURS:
                ours += [spread(row)[0] for _, row in points]
                ticks = [waiters for waiters, _ in points]
        ratios += [spread(row)[0] for row in rows if row["measure"] == "release to the next grant against BLPOP's wake-up, p50"]
        log_axis(axis.xaxis, "waiters", ticks, 10)
    from_zero(axes.values())
    first = next(iter(axes.values()))
    first.set_ylabel("µs from the release to the reply, p50")
    finding = (
        f"The next waiter has its reply {between(ours, 0)} µs after the release: "
        f"{between(ratios)} times what BLPOP takes to wake up"
    )
    handles, _ = first.get_legend_handles_labels()
    return figure, finding, MEDIANS, (handles, ["LOCK.RELEASE to the grant (this module)", "LPUSH to BLPOP's reply, no lock"])


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
        found = [spread(row) for server in servers for row in figures.of("server", server) if row["subject"] == f"{what} -P 16"]
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


def growth(figures, theme):
    pairs = {"acquire + release": "SET + DEL", "renew": "PEXPIRE"}
    servers = figures.values("server")
    figure, grid = plt.subplots(2, len(servers), figsize=(WIDTH, 6.2), sharex=True, sharey="row", squeeze=False)
    ratios = []
    for row_of_axes, (ours, theirs) in zip(grid, pairs.items(), strict=True):
        for axis, server in zip(row_of_axes, servers, strict=True):
            rows = figures.of("server", server)
            for what, name, aside in ((ours, OURS, 0.93), (theirs, "SET + DEL", 1.07)):
                points = by_number([row for row in rows if row["measure"] == f"{what}, server CPU µs"], r"(\d+) held")
                if points:
                    line(axis, theme, name, [(held * aside, *spread(row)) for held, row in points])
                    ticks = [held for held, _ in points]
            found = by_number([row for row in rows if row["measure"] == f"{ours} against strings"], r"(\d+) held")
            ratios += [spread(row)[0] for held, row in found if ours == "acquire + release" and held == ticks[-1]]
            log_axis(axis.xaxis, "locks held", ticks)
            if ours == "acquire + release":
                axis.set_title(server)
                axis.set_xlabel("")
    from_zero(grid.flat)
    grid[0][0].set_ylabel("take and give back,\nµs of CPU per pair")
    grid[1][0].set_ylabel("renew,\nµs of CPU")
    finding = f"With {ticks[-1]:,} locks held, a lock costs {between(ratios)} times the CPU of a string with a ttl"
    handles, _ = grid[0][0].get_legend_handles_labels()
    labels = ["LOCK.ACQUIRE + LOCK.RELEASE, LOCK.RENEW (this module)", "SET NX PX + DEL, PEXPIRE"]
    return figure, finding, f"CPU of the server, 16 commands in a pipeline. {MEDIANS}", (handles, labels), 2


def growth_contended(figures, theme):
    figure, axes = per_server(figures)
    ratios = []
    for server, axis in axes.items():
        rows = figures.of("server", server)
        last = {}
        for measure, name, aside in (("hand-off", OURS, 0.94), ("LPUSH / BLPOP", "BLPOP / LPUSH", 1.06)):
            points = by_number([row for row in rows if row["measure"] == f"{measure}, server CPU µs"], r"(\d+) keys of 10 waiters")
            line(axis, theme, name, [(keys * aside, *spread(row)) for keys, row in points])
            last[name] = spread(points[-1][1])[0]
        keys = points[-1][0]
        ratios.append(last[OURS] / last["BLPOP / LPUSH"])
        log_axis(axis.xaxis, "keys waited for", [10, 100, 1000], end=keys)
    from_zero(axes.values())
    first = next(iter(axes.values()))
    first.set_ylabel("µs of the server's CPU per hand-off")
    finding = f"With 10 waiters at each of {keys:,} keys, a hand-off costs {between(ratios, 1)} times LPUSH and BLPOP"
    handles, _ = first.get_legend_handles_labels()
    return figure, finding, MEDIANS, (handles, ["a hand-off of a lock (this module)", "LPUSH and BLPOP of a list"])


def places(figures, theme):
    # All are ours: a line tells the keys apart, and a marker the listener.
    figure, axes = per_server(figures, height=4.2)
    shapes = {"one key, NOTIFY": ("-", "o"), "one key, absent": ("-", "s"), "own keys, NOTIFY": ("--", "o"), "own keys, absent": ("--", "s")}
    growth = {"one key": [], "own keys": []}
    for server, axis in axes.items():
        rows = [row for row in figures.of("server", server) if row["measure"] == "grant, server CPU µs"]
        for nth, (shape, (style, marker)) in enumerate(shapes.items()):
            points = by_number(rows, rf"(\d+) places, {shape}")
            aside = 1.1 ** (nth - 1.5)
            hollow = theme.colour(OURS) if marker == "o" else "none"
            more = {"linestyle": style, "marker": marker, "markerfacecolor": hollow, "linewidth": THICK if style == "-" else THIN + 0.4}
            line(axis, theme, OURS, [(count * aside, *spread(row)) for count, row in points], shape, **more)
            growth[shape.split(",")[0]].append(spread(points[-1][1])[0] / spread(points[0][1])[0])
        log_axis(axis.xaxis, "places", [count for count, _ in points])
    from_zero(axes.values())
    first = next(iter(axes.values()))
    first.set_ylabel("µs of the server's CPU per grant")
    finding = (
        f"With {number(points[-1][0])} places in one queue a grant costs {between(growth['one key'], 1)} times as much as with "
        f"{number(points[0][0])}, and {between(growth['own keys'], 1)} times as much with a key for each"
    )
    handles, _ = first.get_legend_handles_labels()
    labels = ["one queue, told by NOTIFY", "one queue, absent", "a key for each, told by NOTIFY", "a key for each, absent"]
    return figure, finding, f"All lines are this module. {MEDIANS}", (handles, labels), 2
