//! One owner and many keys: the server's cost of acquiring, refusing, renewing and releasing.

use std::fmt::Display;

use crate::fixture::{name, Fixture};
use crate::harness::{Kind, Server, Setup};
use crate::load::{key, run, token, Connection, Requests, Tally};
use crate::peers::Scripts;
use crate::report::{Bound, Report};
use crate::stats::Spread;
use crate::Run;

pub const CONNECTIONS: usize = 16;
const PIPELINES: [usize; 3] = [1, 16, 64];
const ROUNDS: usize = 7;

/// The commands that a client repeats, and the replies they must get.
pub struct Workload {
    pub name: &'static str,
    /// The number of positive replies, and of negative ones for refused pairs.
    expected: Tally,
    requests: Requests,
}

impl Workload {
    /// Requests that are all granted.
    pub fn granted(name: &'static str, requests: Requests) -> Self {
        let expected = Tally {
            yes: requests.len(),
            ..Tally::default()
        };
        Self {
            name,
            expected,
            requests,
        }
    }

    fn refused(name: &'static str, requests: Requests) -> Self {
        let expected = Tally {
            no: requests.len(),
            ..Tally::default()
        };
        Self {
            name,
            expected,
            requests,
        }
    }

    /// Server CPU in µs for each of `units`.
    pub fn cost(
        &self,
        fixture: &mut Fixture,
        clients: &mut [Connection],
        pipeline: usize,
        units: usize,
    ) -> f64 {
        let before = fixture.cpu_us();
        let tally = run(clients, &self.requests, pipeline);
        assert_eq!(tally, self.expected, "{}", self.name);
        (fixture.cpu_us() - before) / units as f64
    }
}

/// Acquires a window of keys and then releases them, as many as are in flight at once.
pub fn pairs(
    count: usize,
    pipeline: usize,
    take: impl Fn(usize) -> String,
    give: impl Fn(usize) -> String,
) -> Requests {
    let window = CONNECTIONS * pipeline;
    let starts = (0..count).step_by(window);
    Requests::of(starts.flat_map(|start| {
        let keys = start..count.min(start + window);
        let taken: Vec<String> = keys.clone().map(&take).collect();
        taken.into_iter().chain(keys.map(&give).collect::<Vec<_>>())
    }))
}

fn set(n: usize) -> String {
    format!("SET {} {} NX PX 60000", key(n), token(n))
}

fn acquire(n: usize) -> String {
    format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n))
}

fn release(n: usize) -> String {
    format!("LOCK.RELEASE {} {}", key(n), token(n))
}

/// The module's own pair is the last one.
fn pair_workloads(count: usize, pipeline: usize, scripts: &Scripts) -> Vec<Workload> {
    let script = &scripts.compare_and_delete;
    let ping = |_| "PING".to_string();
    let delete = |n| format!("EVALSHA {script} 1 {} {}", key(n), token(n));
    vec![
        Workload::granted("PING twice", pairs(count, pipeline, ping, ping)),
        Workload::granted(
            "SET NX PX + DEL",
            pairs(count, pipeline, set, |n| format!("DEL {}", key(n))),
        ),
        Workload::granted("SET NX PX + EVALSHA", pairs(count, pipeline, set, delete)),
        Workload::granted(
            "LOCK.ACQUIRE + LOCK.RELEASE",
            pairs(count, pipeline, acquire, release),
        ),
    ]
}

/// Costs by workload and round. The workloads take turns.
fn in_turns(
    fixture: &mut Fixture,
    workloads: &[Workload],
    pipeline: usize,
    units: usize,
    rounds: usize,
) -> Vec<Vec<f64>> {
    let mut clients = fixture.connections(CONNECTIONS);
    let mut costs = vec![Vec::new(); workloads.len()];
    for round in 0..=rounds {
        for (workload, costs) in workloads.iter().zip(&mut costs) {
            let cost = workload.cost(fixture, &mut clients, pipeline, units);
            // The first round warms up.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    costs
}

pub fn measure(with: &Run) {
    let mut report = Report::new("owner", "One owner, many keys: server CPU", with.quick);
    report.say(
        "The table shows µs of the server's CPU to take a lock and give it back. Keys have 16 bytes, tokens 36, and 16 connections each send \
         `-P` commands at once. DEL gives back without a look at the owner. EVALSHA runs the usual compare-and-delete.",
    );
    let (mut rows, mut calls) = (Vec::new(), Vec::new());
    for &kind in &with.kinds {
        for setting in Setting::ALL {
            let mut ground = Ground::start(kind, setting);
            for pipeline in PIPELINES {
                if setting == Setting::Plain || pipeline == 16 {
                    let costs = pair(with, &mut ground.fixture, pipeline);
                    pair_row(&mut report, &mut rows, kind, setting, pipeline, &costs);
                    if setting == Setting::Plain && pipeline == 16 {
                        calls.push(call_row(&mut report, kind, &mut ground.fixture));
                    }
                }
            }
        }
    }
    let header = [
        "server",
        "-P",
        "PING twice",
        "SET + DEL",
        "SET + EVALSHA",
        "ACQUIRE + RELEASE",
        "against SET + DEL",
        "against SET + EVALSHA",
    ];
    report.table(&header, &rows);
    let alt = "To take a lock and give it back: server CPU, 16 commands in a pipeline";
    report.picture("owner", alt);
    report.say("### In the commands themselves\n\nµs per call by the server's own stop-watch (INFO commandstats), without reading, parsing and replying; -P 16.");
    report.table(&[&["server"], &CALLS[..]].concat(), &calls);
    without_module(with, &mut report);
    without_script(with, &mut report);
    singles(with, &mut report);
    readers(with, &mut report);
    report.write();
}

const CALLS: [&str; 5] = ["set", "del", "evalsha", "lock.acquire", "lock.release"];

fn call_row(report: &mut Report, kind: Kind, fixture: &mut Fixture) -> Vec<String> {
    let us = CALLS.map(|command| (command, fixture.us_per_call(command)));
    for (command, us) in us {
        report.figure(kind, "µs per call", command, Spread::of(&[us]));
    }
    let shown = us.iter().map(|(_, us)| format!("{us:.2}"));
    [name(kind).to_string()].into_iter().chain(shown).collect()
}

/// What the server also has to do.
#[derive(Clone, Copy, PartialEq)]
enum Setting {
    Plain,
    AppendOnly,
    Replica,
}

impl Setting {
    const ALL: [Self; 3] = [Self::Plain, Self::AppendOnly, Self::Replica];
}

impl Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "",
            Self::AppendOnly => ", AOF everysec",
            Self::Replica => ", one replica",
        })
    }
}

struct Ground {
    fixture: Fixture,
    /// Kept for the whole measurement.
    _replica: Option<Server>,
}

impl Ground {
    fn start(kind: Kind, setting: Setting) -> Self {
        let options: &[&str] = match setting {
            Setting::AppendOnly => &["--appendonly", "yes", "--appendfsync", "everysec"],
            _ => &[],
        };
        let fixture = Fixture::start(kind, options);
        let replica = (setting == Setting::Replica).then(|| {
            let port = fixture.server.port.to_string();
            let of = ["--replicaof", "127.0.0.1", &port];
            let replica = Server::start_as(kind, Setup::with_module(&of));
            replica.wait_until_it_follows(&fixture.server);
            replica
        });
        Self {
            fixture,
            _replica: replica,
        }
    }
}

fn pair(with: &Run, fixture: &mut Fixture, pipeline: usize) -> Vec<Vec<f64>> {
    let scripts = Scripts::load(&mut fixture.control);
    let count = with.size(if pipeline == 1 { 8_192 } else { 32_768 });
    // Whole windows, because a release must not be in flight together with its acquire.
    let count = count.next_multiple_of(CONNECTIONS * pipeline);
    let workloads = pair_workloads(count, pipeline, &scripts);
    fixture.control.call("CONFIG RESETSTAT");
    in_turns(fixture, &workloads, pipeline, count, with.rounds(ROUNDS))
}

fn pair_row(
    report: &mut Report,
    rows: &mut Vec<Vec<String>>,
    kind: Kind,
    setting: Setting,
    pipeline: usize,
    costs: &[Vec<f64>],
) {
    let subject = format!("-P {pipeline}{setting}");
    let names = [
        "PING twice",
        "SET + DEL",
        "SET + EVALSHA",
        "ACQUIRE + RELEASE",
    ];
    let mut row = vec![format!("{}{setting}", name(kind)), pipeline.to_string()];
    for (of, costs) in names.iter().zip(costs) {
        let spread = Spread::of(costs);
        report.figure(
            kind,
            "server CPU µs per pair",
            &format!("{of} {subject}"),
            spread,
        );
        row.push(spread.shown(2));
    }
    let [_, del, script, ours] = costs else {
        unreachable!("four workloads")
    };
    for (limit, rival, theirs) in [(1.0, "SET + DEL", del), (0.5, "SET + EVALSHA", script)] {
        let ratio = Spread::of_ratios(ours, theirs);
        row.push(ratio.shown(2));
        let goal = format!("acquire + release against {rival}, server CPU");
        if pipeline == 1 {
            // The goal does not apply here: the network costs more than the commands.
            report.figure(kind, &goal, &subject, ratio);
        } else {
            report.goal(kind, &goal, &subject, Bound::AtMost(limit), ratio);
        }
    }
    println!("{}", row.join(" | "));
    rows.push(row);
}

/// The same pairs, but the alternative's server does not load the module.
fn without_module(with: &Run, report: &mut Report) {
    report.say("### Beside a server without the module\n\nThe table shows µs of the server's CPU per pair, -P 16: the lock's on a server with the module, SET NX PX + DEL on one without it. The goal, at most 1.10, counts instructions, and `make bench-check` reports it.");
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let mut fixtures = [
            Fixture::start_without_module(kind),
            Fixture::start(kind, &[]),
        ];
        let pipeline = 16;
        let count = with.size(32_768).next_multiple_of(CONNECTIONS * pipeline);
        let strings = pairs(count, pipeline, set, |n| format!("DEL {}", key(n)));
        let locks = pairs(count, pipeline, acquire, release);
        let workloads = [
            Workload::granted("SET NX PX + DEL", strings),
            Workload::granted("LOCK.ACQUIRE + LOCK.RELEASE", locks),
        ];
        let mut clients_of = [
            fixtures[0].connections(CONNECTIONS),
            fixtures[1].connections(CONNECTIONS),
        ];
        let mut costs = vec![Vec::new(); workloads.len()];
        for round in 0..=with.rounds(ROUNDS) {
            for (at, (workload, costs)) in workloads.iter().zip(&mut costs).enumerate() {
                let cost = workload.cost(&mut fixtures[at], &mut clients_of[at], pipeline, count);
                if round > 0 {
                    costs.push(cost);
                }
            }
        }
        let ratio = Spread::of_ratios(&costs[1], &costs[0]);
        let what = "acquire + release against SET + DEL without the module";
        report.figure(kind, what, "-P 16", ratio);
        let mut row = vec![name(kind).to_string()];
        row.extend(costs.iter().map(|costs| Spread::of(costs).shown(2)));
        row.push(ratio.shown(2));
        println!("{}", row.join(" | "));
        rows.push(row);
    }
    let header = [
        "server",
        "SET + DEL, no module",
        "ACQUIRE + RELEASE",
        "ratio",
    ];
    report.table(&header, &rows);
}

/// The pair of servers that compare and delete by a command of their own.
fn without_script(with: &Run, report: &mut Report) {
    report.say("### Compare-and-delete without a script\n\nThe table shows µs of the server's CPU per pair, -P 16. New servers give a string back by DELEX (Redis 8.4) or DELIFEQ (Valkey 9), with a look at the owner.");
    let mut rows = Vec::new();
    for kind in [Kind::Redis8_6, Kind::Valkey9] {
        let mut fixture = Fixture::start(kind, &[]);
        let pipeline = 16;
        let count = with.size(32_768).next_multiple_of(CONNECTIONS * pipeline);
        let delete = move |n| match kind.is_valkey() {
            true => format!("DELIFEQ {} {}", key(n), token(n)),
            false => format!("DELEX {} IFEQ {}", key(n), token(n)),
        };
        let workloads = [
            Workload::granted("SET NX PX + DELEX", pairs(count, pipeline, set, delete)),
            Workload::granted(
                "LOCK.ACQUIRE + LOCK.RELEASE",
                pairs(count, pipeline, acquire, release),
            ),
        ];
        let costs = in_turns(
            &mut fixture,
            &workloads,
            pipeline,
            count,
            with.rounds(ROUNDS),
        );
        let ratio = Spread::of_ratios(&costs[1], &costs[0]);
        let what = "acquire + release against SET + DELEX or DELIFEQ";
        report.figure(kind, what, "-P 16", ratio);
        let mut row = vec![name(kind).to_string()];
        row.extend(costs.iter().map(|costs| Spread::of(costs).shown(2)));
        row.push(ratio.shown(2));
        println!("{}", row.join(" | "));
        rows.push(row);
    }
    let pairs = ["SET + DELEX or DELIFEQ", "ACQUIRE + RELEASE"];
    report.table(&["server", pairs[0], pairs[1], "ratio"], &rows);
}

/// Commands that change nothing, or only a deadline.
fn singles(with: &Run, report: &mut Report) {
    report.say("### Refused and renewed\n\nThe table shows µs of the server's CPU per command; -P 16 and 64.");
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let mut fixture = Fixture::start(kind, &[]);
        let count = with.size(32_768);
        let strings = |n: usize| format!("string:{n:09}");
        let mut clients = fixture.connections(1);
        run(&mut clients, &Requests::of((0..count).map(acquire)), 64);
        let filled = (0..count).map(|n| format!("SET {} {} PX 600000", strings(n), token(n)));
        run(&mut clients, &Requests::of(filled), 64);
        let of = |line: &dyn Fn(usize) -> String| Requests::of((0..count).map(line));
        let other = |n| token(n + 1);
        let workloads = [
            Workload::refused(
                "SET NX PX, refused",
                of(&|n| format!("SET {} {} NX PX 60000", strings(n), other(n))),
            ),
            Workload::refused(
                "LOCK.ACQUIRE, refused",
                of(&|n| format!("LOCK.ACQUIRE {} {} 60000", key(n), other(n))),
            ),
            Workload::granted("PEXPIRE", of(&|n| format!("PEXPIRE {} 600000", strings(n)))),
            Workload::granted(
                "LOCK.RENEW",
                of(&|n| format!("LOCK.RENEW {} {} 600000", key(n), token(n))),
            ),
        ];
        for pipeline in [16, 64] {
            let costs = in_turns(
                &mut fixture,
                &workloads,
                pipeline,
                count,
                with.rounds(ROUNDS),
            );
            let subject = format!("-P {pipeline}");
            let refused = Spread::of_ratios(&costs[1], &costs[0]);
            let renewed = Spread::of_ratios(&costs[3], &costs[2]);
            let mut row = vec![name(kind).to_string(), pipeline.to_string()];
            row.extend(costs.iter().map(|costs| Spread::of(costs).shown(2)));
            row.extend([refused.shown(2), renewed.shown(2)]);
            rows.push(row);
            let goal = "refused acquire against refused SET NX, server CPU";
            report.goal(kind, goal, &subject, Bound::AtMost(1.0), refused);
            report.figure(kind, "renew against PEXPIRE, server CPU", &subject, renewed);
        }
    }
    let header = [
        "server",
        "-P",
        "SET NX, refused",
        "ACQUIRE, refused",
        "PEXPIRE",
        "RENEW",
        "refused, ratio",
        "renewed, ratio",
    ];
    report.table(&header, &rows);
}

/// One key with an increasing number of readers.
fn readers(with: &Run, report: &mut Report) {
    report.say("### Readers of one lock\n\nThe table shows µs of the server's CPU, -P 16, one connection: a new reader's RLOCK + RELEASE, and RENEW.");
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let fixtures = [1, 1_000, 100_000].map(|readers| (readers, Fixture::start(kind, &[])));
        let mut fixtures = fixtures.map(|(readers, fixture)| {
            let clients = (0..readers).map(|n| format!("RWLOCK.RLOCK page {} 6000000", token(n)));
            run(&mut fixture.connections(1), &Requests::of(clients), 64);
            (readers, fixture)
        });
        let count = with.size(8_192);
        let rounds = with.rounds(ROUNDS);
        let mut costs = vec![[Vec::new(), Vec::new()]; fixtures.len()];
        for _ in 0..rounds {
            for ((readers, fixture), costs) in fixtures.iter_mut().zip(&mut costs) {
                let mut clients = fixture.connections(1);
                let coming = (0..2 * count).map(|n| {
                    let new_reader = token(1_000_000 + n / 2);
                    match n % 2 {
                        0 => format!("RWLOCK.RLOCK page {new_reader} 60000"),
                        _ => format!("LOCK.RELEASE page {new_reader}"),
                    }
                });
                // Spread over the readers, in an order that favours no data structure.
                let renewing = (0..count).map(|n| {
                    let reader = token(n * 7919 % *readers);
                    format!("LOCK.RENEW page {reader} 6000000")
                });
                let coming = Workload::granted("RLOCK + RELEASE", Requests::of(coming));
                let renewing = Workload::granted("RENEW", Requests::of(renewing));
                costs[0].push(coming.cost(fixture, &mut clients, 16, count));
                costs[1].push(renewing.cost(fixture, &mut clients, 16, count));
            }
        }
        let names = [("RLOCK + RELEASE", 2.0), ("RENEW", 1.2)];
        for ((readers, _), of) in fixtures.iter().zip(&costs) {
            let mut row = vec![name(kind).to_string(), readers.to_string()];
            for (n, (what, limit)) in names.into_iter().enumerate() {
                let ratio = Spread::of_ratios(&of[n], &costs[0][n]);
                row.push(format!(
                    "{} = {:.2} x",
                    Spread::of(&of[n]).shown(2),
                    ratio.median
                ));
                if *readers > 1 {
                    let goal = "readers of one lock against one reader, server CPU";
                    let subject = format!("{what}, {readers} readers");
                    report.goal(kind, goal, &subject, Bound::AtMost(limit), ratio);
                }
            }
            rows.push(row);
        }
    }
    report.table(&["server", "readers", "RLOCK + RELEASE", "RENEW"], &rows);
}
