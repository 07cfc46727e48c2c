//! The cost of other commands on a server with the module, beside a server without it, in CPU time
//! and in instructions.

use crate::callgrind::Counted;
use crate::fixture::{name, Fixture};
use crate::harness::Kind;
use crate::load::{key, token, Connection, Requests};
use crate::owner::{pairs, Workload, CONNECTIONS};
use crate::report::{Bound, Report};
use crate::stats::Spread;
use crate::Run;

const PIPELINE: usize = 16;
/// The number of commands in flight.
const WINDOW: usize = CONNECTIONS * PIPELINE;
/// Two processes of one server differ by some percent, depending on their memory layout. So several
/// pairs of servers share the rounds.
const COUPLES: usize = 5;
const ROUNDS: usize = 20;
const COMMANDS: usize = 65_536;
/// There are so many lists that none of them grows long.
const LISTS: usize = 1_000;
/// The highest ratio of CPU time for other clients' commands.
const LIMIT: f64 = 1.02;

/// A command of clients that do not use locks.
struct Command {
    name: &'static str,
    line: fn(usize) -> String,
}

const PING: Command = Command {
    name: "PING",
    line: |_| "PING".into(),
};
const SET_NX_PX: Command = Command {
    name: "SET NX PX",
    line: |n| format!("SET {} {} NX PX 60000", key(n), token(n)),
};
const SET_PX: Command = Command {
    name: "SET PX",
    line: |n| format!("SET {} {} PX 60000", key(n), token(n)),
};
const SET: Command = Command {
    name: "SET",
    line: |n| format!("SET {} {}", key(n), token(n)),
};
const GET: Command = Command {
    name: "GET",
    line: |n| format!("GET {}", key(n)),
};
const EXPIRE: Command = Command {
    name: "EXPIRE",
    line: |n| format!("EXPIRE {} 60", key(n)),
};
const DEL: Command = Command {
    name: "DEL",
    line: |n| format!("DEL {}", key(n)),
};
/// Not measured.
const CLEAR: Command = Command { name: "", ..DEL };
const LPUSH: Command = Command {
    name: "LPUSH",
    line: |n| format!("LPUSH list:{} {}", n % LISTS, token(n)),
};
const RPOP: Command = Command {
    name: "RPOP",
    line: |n| format!("RPOP list:{}", n % LISTS),
};
const ACQUIRE: Command = Command {
    name: "LOCK.ACQUIRE",
    line: |n| format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n)),
};
const RELEASE: Command = Command {
    name: "LOCK.RELEASE",
    line: |n| format!("LOCK.RELEASE {} {}", key(n), token(n)),
};

/// Commands and the depth of their pipeline.
struct Step {
    workload: Workload,
    pipeline: usize,
    /// The commands in it.
    count: usize,
}

impl Step {
    fn alone(command: Command, count: usize) -> Self {
        let requests = Requests::of((0..count).map(command.line));
        Self::of(command.name, requests, PIPELINE)
    }

    fn of(name: &'static str, requests: Requests, pipeline: usize) -> Self {
        Self {
            count: requests.len(),
            workload: Workload::granted(name, requests),
            pipeline,
        }
    }
}

/// Runs one round. Every command finds the keys as the previous one left them, and the last one
/// leaves none.
fn steps(count: usize) -> Vec<Step> {
    let together = |name, pipeline: usize, one: Command, other: Command| {
        // One command at a time costs several times as much.
        let pairs = match pipeline {
            1 => pairs(count / 8, 1, one.line, other.line),
            _ => pairs(count / 2, pipeline, one.line, other.line),
        };
        Step::of(name, pairs, pipeline)
    };
    vec![
        Step::alone(PING, count),
        together("SET PX + DEL", PIPELINE, SET_PX, DEL),
        Step::alone(SET_PX, count),
        Step::alone(GET, count),
        Step::alone(EXPIRE, count),
        Step::alone(SET, count),
        Step::alone(DEL, count),
        together("LPUSH + RPOP", PIPELINE, LPUSH, RPOP),
        together("SET PX + DEL, -P 1", 1, SET_PX, DEL),
    ]
}

/// A server, and the clients that send requests to it.
struct Side {
    fixture: Fixture,
    clients: Vec<Connection>,
}

impl Side {
    fn of(fixture: Fixture) -> Self {
        let clients = fixture.connections(CONNECTIONS);
        Self { fixture, clients }
    }
}

pub fn measure(with: &Run) {
    let title = "What others pay: server CPU with the module and without it";
    let mut report = Report::new("others", title, with.quick);
    report.say(&format!(
        "The table shows µs of the server's CPU for commands that have nothing to do with locks. It compares a server that has \
         the module with the same server without it. There are {CONNECTIONS} connections, 16-byte keys, 36-byte values, and -P {PIPELINE} unless the table says otherwise. \
         The two take turns, and the first one changes from round to round. There are {ROUNDS} rounds on {COUPLES} couples of servers. \
         PING touches no key: its ratio is that of the loop, in which a server with any module has a little more to do."
    ));
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        rows.extend(rows_of(with, &mut report, kind));
    }
    let header = [
        "server",
        "command",
        "without the module",
        "with the module",
        "ratio",
        "its middle half",
    ];
    report.table(&header, &rows);
    report.write();
}

fn rows_of(with: &Run, report: &mut Report, kind: Kind) -> Vec<Vec<String>> {
    let count = with.size(COMMANDS).next_multiple_of(8 * WINDOW);
    let steps = steps(count);
    let mut costs = [vec![Vec::new(); steps.len()], vec![Vec::new(); steps.len()]];
    for _ in 0..with.rounds(COUPLES) {
        let rounds = with.rounds(ROUNDS / COUPLES);
        measure_couple(kind, &steps, rounds, &mut costs);
    }
    let [without, loaded] = &costs;
    let mut rows = Vec::new();
    for ((step, without), loaded) in steps.iter().zip(without).zip(loaded) {
        let subject = step.workload.name;
        let ratio = Spread::of_ratios(loaded, without);
        let (low, high) = Spread::middle_half_of_ratios(loaded, without);
        let shown = [without, loaded].map(|costs| Spread::of(costs));
        for (at, spread) in ["without", "with"].iter().zip(shown) {
            let measure = format!("server CPU µs per command, {at} the module");
            report.figure(kind, &measure, subject, spread);
        }
        let goal = "other commands with the module against without it, server CPU";
        if subject == PING.name {
            report.figure(kind, goal, subject, ratio);
        } else {
            report.goal(kind, goal, subject, Bound::AtMost(LIMIT), ratio);
        }
        rows.push(vec![
            name(kind).to_string(),
            subject.to_string(),
            shown[0].shown(3),
            shown[1].shown(3),
            ratio.shown(3),
            format!("{low:.3} to {high:.3}"),
        ]);
    }
    rows
}

/// Adds some rounds to the costs without the module and with it.
fn measure_couple(kind: Kind, steps: &[Step], rounds: usize, costs: &mut [Vec<Vec<f64>>; 2]) {
    let mut sides = [
        Side::of(Fixture::start_without_module(kind)),
        Side::of(Fixture::start(kind, &[])),
    ];
    // One more round, because the first one warms up.
    for round in 0..=rounds {
        for (n, step) in steps.iter().enumerate() {
            let begins = round % 2;
            for at in [begins, 1 - begins] {
                let Side { fixture, clients } = &mut sides[at];
                let cost = step
                    .workload
                    .cost(fixture, clients, step.pipeline, step.count);
                if round > 0 {
                    costs[at][n].push(cost);
                }
            }
        }
    }
}

/// The keys of a counted round, as few as in `instructions`. There are more rounds, because the
/// expected difference is smaller.
const COUNTED_KEYS: usize = 48;
const COUNTED_ROUNDS: usize = 15;
const WARM_UP: usize = 2;

/// The instructions of commands.
pub type Counts = Vec<(&'static str, f64)>;

/// The same commands on a server without the module and on one with it, and on the latter the
/// module's own commands.
pub struct Beside {
    pub without: Counts,
    pub with: Counts,
    pub ours: Counts,
}

/// Counts on one server without the module, and on one with it. By the chance of its hash seed, one
/// command costs up to 3 % more in all rounds of a server.
pub fn count(kind: Kind, resident: usize) -> Beside {
    // In this order every command has an effect, and no key is left at the end.
    let theirs = [
        PING, SET_NX_PX, DEL, LPUSH, RPOP, SET_PX, GET, EXPIRE, SET, CLEAR,
    ];
    let mut counted = Counted::start_without_module(kind);
    counted.prepare(resident, 0);
    let without = count_on(&mut counted, &theirs);
    drop(counted);
    let mut counted = Counted::start(kind);
    counted.prepare(resident, 0);
    let with = count_on(&mut counted, &theirs);
    let ours = count_on(&mut counted, &[ACQUIRE, RELEASE]);
    Beside {
        without,
        with,
        ours,
    }
}

fn count_on(counted: &mut Counted, commands: &[Command]) -> Counts {
    let mut rounds = vec![Vec::new(); commands.len()];
    for round in 0..WARM_UP + COUNTED_ROUNDS {
        let keys = COUNTED_KEYS * round..COUNTED_KEYS * (round + 1);
        for (command, rounds) in commands.iter().zip(&mut rounds) {
            let requests = Requests::of(keys.clone().map(command.line));
            let tally = counted.run(&requests);
            let instructions = counted.instructions() / COUNTED_KEYS as f64;
            assert_eq!(tally.yes, COUNTED_KEYS, "{}: {tally:?}", command.name);
            if round >= WARM_UP {
                rounds.push(instructions);
            }
        }
    }
    let names = commands.iter().map(|command| command.name);
    let medians = rounds.iter().map(|rounds| Spread::of(rounds).median);
    let counts = names.zip(medians);
    counts.filter(|(name, _)| !name.is_empty()).collect()
}
