"""Writes the figures of docs/PROOF.md, between `<!-- figures: NAME -->` and `<!-- end of figures -->`, from docs/benchmarks."""

import csv
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
# Each fault of the campaign, in words.
FAULTS = {
    "calm": "no fault",
    "restartempty": "kill -9, and a start with nothing",
    "restartrdb": "kill -9, and a start with an older RDB",
    "restartaof": "kill -9, and a start with the beginning of the append-only file",
    "diskfull": "a full disk, then kill -9 and a start",
    "paused": "SIGSTOP of the primary for about a lease",
    "clockstep": "a step of the primary's wall clock",
    "behind": "kill -9, and the promotion of a replica that is behind",
    "twice": "the same twice within C",
    "slow": "the same over slow links",
    "speeds": "the same with clocks of different speed",
    "config": "the same after changes of mode and M",
    "planned": "`FAILOVER`, which loses nothing",
    "upgrade": "a rolling upgrade, with `FAILOVER`",
    "stopped": "SIGSTOP of the old primary during the promotion, and its return",
    "liveson": "an old primary that goes on granting for a while",
    "partition": "a partition, and a promotion on one side",
    "empty": "the promotion of an empty replica",
    "cutoff": "an old primary that lives on, cut off, with clients on both sides",
    "moved": "slots of a cluster that move key by key",
    "movedatonce": "slots of a cluster that move as a whole",
    "seized": "slots that come without their holds",
}

def read(name):
    with open(DOCS / "benchmarks" / f"{name}.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))

def total(rows, column, **of):
    return sum(int(row[column]) for row in rows if all(row[name] == value for name, value in of.items()))

def percent(part, of):
    return f"{(100 * part + of // 2) // of} %" if of else "-"

def runs():
    words = "- seed {seed}, commit {commit}: {rounds:,} rounds, {requests:,} requests, {groups} groups at one time, {hours:.2f} hours\n"
    told = [{**run, "hours": float(run["hours"]), "rounds": int(run["rounds"]), "requests": int(run["requests"])} for run in read("runs")]
    return "".join(words.format(**run) for run in told)

def campaign(rows):
    names = ["rounds", "grants", "overlaps", "late", "rounds with overlaps", "holds of adapters", "not counted"]
    on, off = ({name: total(rows, name, guard=guard) for name in names} for guard in ("on", "off"))
    with_overlaps = off["rounds with overlaps"]
    return (
        f"- **With the guard**: {on['rounds']:,} rounds, {on['grants']:,} grants, **{on['overlaps']:,} overlaps**. The first new grant came late in {on['late']:,}.\n"
        f"- **Without it**, as a control: {off['rounds']:,} rounds, {with_overlaps:,} of them with overlaps ({percent(with_overlaps, off['rounds'])}).\n"
        f"- **Adapters** of five languages: {on['holds of adapters'] + off['holds of adapters']:,} holds.\n"
        f"- **Not counted**: {on['not counted'] + off['not counted']:,}. The driver could not play these rounds, or they left the conditions.\n"
        f"- **Servers**: {', '.join(sorted({row['server'] for row in rows}))}.\n"
    )

def faults(rows):
    names = list(FAULTS)
    told = []
    for topology, fault in sorted({(row["topology"], row["fault"]) for row in rows}, key=lambda one: (one[0], names.index(one[1]))):
        words = FAULTS[fault]
        if (topology, fault) == ("sentinel", "planned"):
            words = "`SENTINEL FAILOVER`, and the old primary goes on for a while"
        of = {"topology": topology, "fault": fault}
        control, overlaps = (total(rows, name, guard="off", **of) for name in ("rounds", "rounds with overlaps"))
        guarded = total(rows, "rounds", guard="on", **of)
        assert total(rows, "overlaps", guard="on", **of) == 0, "the headline says none"
        told.append(f"- {topology}, {words}: {guarded:,}; {overlaps} of {control:,}\n")
    return "Rounds with the guard, all without overlaps; rounds of the control with overlaps:\n\n" + "".join(told)

def modes(rows):
    told = []
    for mode in ["restart", "failover", "quorum"]:
        rounds, grants, renewing, kept = (total(rows, name, guard="on", mode=mode) for name in ("rounds", "grants", "renewing", "kept"))
        told.append(f"- `{mode}`: {rounds:,} rounds, {grants:,} grants; {kept:,} of {renewing:,} renewals kept the hold\n")
    return "".join(told)

def planted():
    rows = read("planted")
    told = []
    for row in rows:
        rounds = "" if row["rounds"] == "1" else f", {row['rounds']} rounds"
        told.append(f"- {row['fault'].replace('-', ' ')} (`{row['modes'].replace(',', '`, `')}`): {row['found by']}{rounds}\n")
    found = sum(row["found by"] != "nobody" for row in rows)
    return f"The judges found {found} of {len(rows)} faults, in one round where no number stands.\n\n" + "".join(told)

failovers = read("failovers")
page = (DOCS / "PROOF.md").read_text()
for name, figures in {"runs": runs(), "campaign": campaign(failovers), "faults": faults(failovers), "modes": modes(failovers), "planted": planted()}.items():
    page, count = re.subn(rf"(?s)(<!-- figures: {name} -->\n).*?(<!-- end of figures -->)", lambda block: block[1] + figures + block[2], page)
    assert count == 1, name
(DOCS / "PROOF.md").write_text(page)
