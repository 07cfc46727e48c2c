//! The soak: many clients on a few locks, with crashes, kills, deletions and pauses, and a checker
//! of the recorded history.
//!
//! - [`clients`] and [`operator`]: the actions on the server, from a seed.
//!   [`sending`]: their requests.
//! - [`history`]: the record of the clients, and the server's append-only file.
//! - [`rule`], [`timeline`], [`checker`], [`requests`], [`several`], [`linger`], [`kept`],
//!   [`guarded`], [`info_replies`]: the rules, over a [`replay`].
//!   [`checker_tests`], [`several_tests`], [`kept_tests`], [`notified_tests`], [`guarded_tests`] and
//!   [`taken_back`] show with [`forged`] histories that each rule refuses what it should.
//! - [`linearizable`]: a shorter run whose replies a checker from a registry judges.
//!
//! `SOAK_SECONDS` makes it longer (`make soak`), `SOAK_SEED` repeats the choices of a run, not its
//! timing.

mod checker;
mod checker_tests;
mod clients;
mod findings;
mod forged;
mod guarded;
mod guarded_tests;
pub mod history;
mod info_replies;
mod kept;
mod kept_tests;
mod linearizable;
mod linger;
mod notified_tests;
mod operator;
mod replay;
mod requests;
mod rule;
mod sending;
mod several;
mod several_tests;
mod taken_back;
mod timeline;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{figure, setting, wait_for, Kind, Reply, Server};
use checker::check;
use clients::{Client, Fixture};
use findings::Findings;
use history::{now_us, read_log, History};
use operator::{Observer, Operator};
use rule::Breach;

on_every_server![many_clients_on_few_locks_keep_every_rule];

const CLIENTS: usize = 64;
const LOCKS: usize = 10;

/// The whole file is one history from the first command on.
const OPTIONS: [&str; 8] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "no",
    "--aof-use-rdb-preamble",
    "no",
    "--auto-aof-rewrite-percentage",
    "0",
];

/// How many runs the suite makes before it believes in breaches of the rules about time.
const RUNS: usize = 3;

/// More breaches than these are no stalls of the machine.
const MOST_BY_STALLS: usize = 4;

/// In the suite many servers share few processors. The system may then stop the server or a client
/// for milliseconds, at a moment that the judge cannot see. So a few breaches of the rules about
/// time must come back in every one of [`RUNS`] runs. Those of all other rules count at once, and
/// in a run of a chosen length every breach does.
fn many_clients_on_few_locks_keep_every_rule(kind: Kind) {
    let chosen: Option<u64> = setting("SOAK_SECONDS");
    let seconds = chosen.unwrap_or(4);
    let runs = if chosen.is_some() { 1 } else { RUNS };
    for run in 1..=runs {
        let seed = setting("SOAK_SEED").unwrap_or_else(now_us);
        let (history, stalls) = play(kind, seconds, seed);
        match check(&history) {
            Ok(findings) => return are_of_every_kind(kind, seconds, seed, &findings, stalls),
            Err(breaches) => {
                show(&history, &breaches);
                let by_stalls = breaches.len() <= MOST_BY_STALLS
                    && breaches.iter().all(|breach| breach.rule.is_about_time());
                assert!(
                    by_stalls && run < runs,
                    "{kind:?}: {} breaches with SOAK_SEED={seed} SOAK_SECONDS={seconds}, run {run}",
                    breaches.len()
                );
            }
        }
    }
}

/// What a new server did, and how often the machine stood still.
fn play(kind: Kind, seconds: u64, seed: u64) -> (History, usize) {
    let mut server = Server::start_with(kind, &OPTIONS);
    let fixture = Fixture {
        port: server.port,
        keys: (0..LOCKS).map(|n| format!("lock:{n}")).collect(),
        seed,
        over: AtomicBool::new(false),
        connections: (0..=CLIENTS).map(|_| AtomicI64::new(0)).collect(),
    };
    let mut history = record(&fixture, &mut server, Duration::from_secs(seconds));
    let stalls = history.note_stalls();
    allow_for_the_clock(kind, &mut history);
    (history, stalls)
}

/// A run has played all that it judges.
fn are_of_every_kind(kind: Kind, seconds: u64, seed: u64, findings: &Findings, stalls: usize) {
    assert!(findings.grants > 0 && findings.hand_offs > 0);
    assert!(findings.permits > 0, "{findings}");
    assert!(findings.resumed > 0 && findings.absent > 0, "{findings}");
    assert!(findings.notified > findings.notified_several, "{findings}");
    assert!(findings.notified_several > 0, "{findings}");
    assert!(findings.deaf > 0 && findings.deaf_kept > 0, "{findings}");
    assert!(findings.guarded > 0 && findings.not_held > 0, "{findings}");
    let stalls = match stalls {
        0 => String::new(),
        stalls => format!("; the machine stood still {stalls} times"),
    };
    figure(
        kind,
        &format!("{seconds} s, seed {seed}: {findings}{stalls}"),
    );
}

/// Prints the first breaches, with the steps around each, and all requests of the token that it names.
fn show(history: &History, breaches: &[Breach]) {
    for breach in breaches.iter().take(5) {
        let around = breach.at.saturating_sub(40)..history.log.len().min(breach.at + 4);
        for at in around {
            eprintln!("  {at}: {}", history.log[at]);
        }
        let token = breach.text.split('"').nth(1);
        let requests = history.requests.iter();
        for (number, request) in requests.filter(|(_, r)| Some(&r.token[..]) == token) {
            eprintln!("  {number}: {request:?}");
        }
        eprintln!("{:?} at {}: {}", breach.rule, breach.at, breach.text);
    }
}

/// Valkey 9 reads its clock once a millisecond, and extrapolates with the processor's counter. If
/// it is interrupted in between, it is ahead until the next reading, by less than a millisecond.
const CLOCK_LEAD_US: u64 = 1_000;

/// Widens every time that is compared with the server's by the inaccuracy of this server's clock.
fn allow_for_the_clock(kind: Kind, history: &mut History) {
    if kind != Kind::Valkey9 {
        return;
    }
    history.clock_lead_ms = CLOCK_LEAD_US / 1_000;
    for request in history.requests.values_mut() {
        request.ended_us += CLOCK_LEAD_US;
    }
    for sample in history.samples.values_mut() {
        sample.server_us -= CLOCK_LEAD_US;
        sample.ended_us += CLOCK_LEAD_US;
    }
}

/// Runs the clients until the time is over.
fn record(fixture: &Fixture, server: &mut Server, time: Duration) -> History {
    let mut observer = Observer::new(fixture);
    let start = Instant::now();
    let (mut requests, operator): (BTreeMap<_, _>, _) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || Client::new(fixture, number).run()))
            .collect();
        let operator = scope.spawn(|| Operator::new(fixture).run());
        let observing = scope.spawn(|| observer.run());
        while start.elapsed() < time {
            thread::sleep(Duration::from_millis(20));
        }
        fixture.over.store(true, Ordering::Relaxed);
        let requests = clients
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect();
        observing.join().unwrap();
        (requests, operator.join().unwrap())
    });
    // The remaining holds expire, and then nothing is left.
    wait_for("all locks to be free", || observer.look().then_some(()));
    let blocked_at_end = server.blocked_clients();
    requests.extend(operator.requests);
    requests.extend(Client::new(fixture, CLIENTS).leave_locks_held());
    observer.look();
    let log = read_log(server.dir());
    let before = holders(fixture, server);
    server.kill();
    server.start_again();
    assert_eq!(holders(fixture, server), before, "after a restart");
    History {
        log,
        requests,
        samples: observer.samples,
        pauses: operator.pauses,
        operator: operator.wire.id,
        clock_lead_ms: 0,
        blocked_at_end,
    }
}

/// Mode, and token, fence and start of every hold.
fn holders(fixture: &Fixture, server: &Server) -> Vec<Vec<Reply>> {
    let mut client = server.client();
    let keys = fixture.keys.iter();
    keys.map(|key| client.steady_info(key)).collect()
}
