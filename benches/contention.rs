//! Many clients, one lock.

use std::time::Duration;

use crate::fixture::{name, Fixture};
use crate::harness::Kind;
use crate::load_clients::LoadClients;
use crate::peers::{Protocol, Scripts};
use crate::report::{Bound, Report};
use crate::stats::{jain, shown_us, Spread};
use crate::Run;

const CLIENTS: [usize; 4] = [2, 16, 64, 256];
const HOLDS_MS: [u64; 2] = [0, 1];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(500);
/// If each client holds the lock for a while, every client should still get several turns.
const ROUND_PER_CLIENT: Duration = Duration::from_millis(6);
/// A protocol that polls with long pauses is measured for longer.
const POLL_ROUND: Duration = Duration::from_secs(3);
/// These run on all servers. Polling takes long to measure and differs little between servers.
const BLOCKING: [Protocol; 3] = [Protocol::Lock, Protocol::Ceiling, Protocol::Signal];
const POLLING: [Protocol; 3] = [Protocol::Poll(1), Protocol::Poll(10), Protocol::Poll(100)];
const POLLED: Kind = Kind::Redis8_2;

/// The results of the rounds: each figure once per round.
#[derive(Default)]
struct Shown {
    hand_offs: Vec<f64>,
    waits: [Vec<f64>; 3],
    jain: Vec<f64>,
    starved: Vec<f64>,
    commands: Vec<f64>,
    cpu: Vec<f64>,
    /// Acquisitions per second.
    taken: Vec<f64>,
}

pub fn measure(with: &Run) {
    let mut report = Report::new("contention", "Many clients, one lock", with.quick);
    report.say(
        "A hand-off is an acquisition by another client than the one before. A client that polls often takes the lock again itself. The ceiling is no \
         lock: a list with one element, BLPOP takes it, LPUSH gives it back. The BLPOP signal is the protocol of python-redis-lock. \
         Rounds last 0.5 s, or 6 ms per client with a hold. Polling has one round of 3 s, on Redis 8.2.3 only. `starved` is the number of clients that got nothing in a round. Commands are those that the server says it has executed. \
         They leave out those of clients that have not had their turn when the round ends.",
    );
    for hold in HOLDS_MS {
        let mut rows = Vec::new();
        for &kind in &with.kinds {
            for clients in CLIENTS {
                cell(with, &mut report, kind, clients, hold, &mut rows);
            }
        }
        report.say(&format!("### Hold of {hold} ms"));
        report.table(
            &[
                "server",
                "protocol",
                "clients",
                "acquisitions/s",
                "hand-offs/s",
                "wait p50",
                "p99",
                "max",
                "Jain",
                "starved",
                "commands each",
                "server CPU µs each",
            ],
            &rows,
        );
        let alt = format!("Hand-offs per second of one lock, held for {hold} ms");
        report.picture(&format!("contention-{hold}ms"), &alt);
    }
    readers_and_writers(with, &mut report);
    report.write();
}

/// Measures one number of clients on one server. The blocking protocols take turns.
fn cell(
    with: &Run,
    report: &mut Report,
    kind: Kind,
    clients: usize,
    hold: u64,
    rows: &mut Vec<Vec<String>>,
) {
    let mut fixture = Fixture::start(kind, &[]);
    let mut shown: Vec<(Protocol, Shown)> = BLOCKING.map(|p| (p, Shown::default())).into();
    for _ in 0..with.rounds(ROUNDS) {
        for (protocol, shown) in &mut shown {
            let time = round_of(clients, hold);
            round(&mut fixture, *protocol, clients, hold, time, shown);
        }
    }
    if kind == POLLED || with.quick {
        for protocol in POLLING {
            let mut polled = Shown::default();
            let time = if with.quick { ROUND } else { POLL_ROUND };
            round(&mut fixture, protocol, clients, hold, time, &mut polled);
            shown.push((protocol, polled));
        }
    }
    for (protocol, shown) in &shown {
        let subject = format!("{}, {clients} clients, held {hold} ms", protocol.name());
        let row = row(report, kind, *protocol, clients, &subject, shown);
        println!("{}", row.join(" | "));
        rows.push(row);
    }
    let of = |which| {
        let found = shown.iter().find(|(protocol, _)| *protocol == which);
        &found.expect("a protocol").1
    };
    goals(
        report,
        kind,
        clients,
        hold,
        of(Protocol::Lock),
        of(Protocol::Ceiling),
        of(Protocol::Signal),
    );
}

fn goals(
    report: &mut Report,
    kind: Kind,
    clients: usize,
    hold: u64,
    ours: &Shown,
    ceiling: &Shown,
    signal: &Shown,
) {
    let subject = format!("{clients} clients, held {hold} ms");
    let commands = Spread::of(&ours.commands);
    report.goal(
        kind,
        "server commands per contended acquisition",
        &subject,
        Bound::AtMost(2.01),
        commands,
    );
    let starved = Spread::of(&ours.starved);
    report.goal(
        kind,
        "clients that starve",
        &subject,
        Bound::AtMost(0.0),
        starved,
    );
    let fair = Spread::of(&ours.jain);
    if hold == 0 {
        let to_ceiling = Spread::of_ratios(&ours.hand_offs, &ceiling.hand_offs);
        let to_signal = Spread::of_ratios(&ours.hand_offs, &signal.hand_offs);
        let goal = "hand-offs/s against the BLPOP / LPUSH ceiling";
        report.goal(kind, goal, &subject, Bound::AtLeast(0.97), to_ceiling);
        report.goal(
            kind,
            "hand-offs/s against the BLPOP signal",
            &subject,
            Bound::AtLeast(2.1),
            to_signal,
        );
        report.goal(
            kind,
            "fairness (Jain)",
            &subject,
            Bound::AtLeast(0.999),
            fair,
        );
    } else {
        // With few acquisitions per client, one more or less is not unfair. The head of results.md
        // says so.
        report.figure(kind, "fairness (Jain)", &subject, fair);
    }
}

fn row(
    report: &mut Report,
    kind: Kind,
    protocol: Protocol,
    clients: usize,
    subject: &str,
    shown: &Shown,
) -> Vec<String> {
    let median = |values: &[f64]| Spread::of(values).median;
    for (measure, values) in [
        ("acquisitions/s", &shown.taken),
        ("hand-offs/s", &shown.hand_offs),
        ("wait p50 µs", &shown.waits[0]),
        ("wait p99 µs", &shown.waits[1]),
        ("wait max µs", &shown.waits[2]),
        ("Jain", &shown.jain),
        ("starved", &shown.starved),
        ("commands per acquisition", &shown.commands),
        ("server CPU µs per acquisition", &shown.cpu),
    ] {
        report.figure(kind, measure, subject, Spread::of(values));
    }
    let mut row = vec![
        name(kind).to_string(),
        protocol.name(),
        clients.to_string(),
        Spread::of(&shown.taken).shown(0),
        Spread::of(&shown.hand_offs).shown(0),
    ];
    row.extend(shown.waits.iter().map(|waits| shown_us(median(waits))));
    row.extend([
        format!("{:.4}", median(&shown.jain)),
        format!("{:.0}", median(&shown.starved)),
        format!("{:.2}", median(&shown.commands)),
        format!("{:.1}", median(&shown.cpu)),
    ]);
    row
}

fn round_of(clients: usize, hold: u64) -> Duration {
    let turns = ROUND_PER_CLIENT * clients as u32;
    ROUND.max(if hold == 0 { ROUND } else { turns })
}

fn round(
    fixture: &mut Fixture,
    protocol: Protocol,
    clients: usize,
    hold: u64,
    time: Duration,
    shown: &mut Shown,
) {
    let outcome = contend(fixture, protocol, clients, hold, time, shown);
    shown.jain.push(jain(&outcome.taken));
}

fn contend(
    fixture: &mut Fixture,
    protocol: Protocol,
    clients: usize,
    hold: u64,
    time: Duration,
    shown: &mut Shown,
) -> crate::load_clients::Outcome {
    let counts_who_waits = fixture.counts_who_waits();
    fixture.clear();
    let scripts = Scripts::load(&mut fixture.control);
    protocol.prepare(&mut fixture.control);
    let scripts = (0..clients).map(|n| protocol.script(n, &scripts)).collect();
    let mut clients =
        LoadClients::connect(fixture.server.port, scripts, Duration::from_millis(hold));
    let (cpu, commands) = (fixture.cpu_us(), fixture.commands());
    let outcome = clients.contend(time);
    let acquisitions = outcome.acquisitions();
    shown.cpu.push((fixture.cpu_us() - cpu) / acquisitions);
    let rest = clients.settle();
    // Reading the CPU time and the command count takes two more commands.
    let commands = fixture.commands() - commands - 2.0;
    let waits = if counts_who_waits { rest.blocked } else { 0 };
    let unfinished = rest.holding + rest.refused + waits;
    shown
        .commands
        .push((commands - unfinished as f64) / rest.given_back as f64);
    shown
        .hand_offs
        .push(outcome.hand_offs as f64 / outcome.seconds);
    shown.taken.push(acquisitions / outcome.seconds);
    shown.starved.push(outcome.starved() as f64);
    for (waits, share) in shown.waits.iter_mut().zip([0.5, 0.99, 1.0]) {
        waits.push(outcome.waits.at(share));
    }
    outcome
}

fn readers_and_writers(with: &Run, report: &mut Report) {
    report.say("### Readers and writers, 9:1\n\nEvery tenth client writes. Jain's index is each side's own.");
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        for hold in HOLDS_MS {
            for clients in [16, 64, 256] {
                let mut fixture = Fixture::start(kind, &[]);
                let mut shown = Shown::default();
                let mut sides: [(Vec<f64>, Vec<f64>); 2] = Default::default();
                for _ in 0..with.rounds(ROUNDS) {
                    let protocol = Protocol::ReadersAndWriters;
                    let outcome = contend(&mut fixture, protocol, clients, hold, ROUND, &mut shown);
                    for (writes, (per_second, fair)) in [false, true].iter().zip(&mut sides) {
                        let taken = outcome.taken.iter().enumerate();
                        let side = taken.filter(|(n, _)| protocol.writes(*n) == *writes);
                        let side: Vec<f64> = side.map(|(_, taken)| *taken).collect();
                        per_second.push(side.iter().sum::<f64>() / outcome.seconds);
                        fair.push(jain(&side));
                    }
                }
                let subject = format!("{clients} clients, held {hold} ms");
                let mut row = vec![
                    name(kind).to_string(),
                    clients.to_string(),
                    hold.to_string(),
                ];
                for ((per_second, fair), side) in sides.iter().zip(["reads/s", "writes/s"]) {
                    let per_second = Spread::of(per_second);
                    report.figure(kind, side, &subject, per_second);
                    row.push(per_second.shown(0));
                    row.push(format!("{:.4}", Spread::of(fair).median));
                }
                row.extend(
                    shown
                        .waits
                        .iter()
                        .map(|waits| shown_us(Spread::of(waits).median)),
                );
                let starved = Spread::of(&shown.starved);
                row.push(format!("{:.0}", starved.median));
                row.push(format!("{:.2}", Spread::of(&shown.commands).median));
                row.push(Spread::of(&shown.cpu).shown(1));
                println!("{}", row.join(" | "));
                rows.push(row);
                let subject = format!("readers and writers 9:1, {subject}");
                report.goal(
                    kind,
                    "clients that starve",
                    &subject,
                    Bound::AtMost(0.0),
                    starved,
                );
            }
        }
    }
    report.table(
        &[
            "server",
            "clients",
            "held ms",
            "reads/s",
            "Jain",
            "writes/s",
            "Jain",
            "wait p50",
            "p99",
            "max",
            "starved",
            "commands each",
            "server CPU µs each",
        ],
        &rows,
    );
}
