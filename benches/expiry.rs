//! A million locks whose deadlines all lie within one second, and what other clients notice of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::fixture::{name, Fixture};
use crate::harness::{packed, Client, Kind};
use crate::load::{key, run, token, Connection, Requests};
use crate::report::{Bound, Report};
use crate::stats::{shown_us, Latency, Spread};
use crate::Run;

const LOCKS: usize = 1_000_000;
const BATCH: usize = 2_000;
const ROUNDS: usize = 2;
/// The time that filling may take. The first deadline follows.
const HEADROOM: Duration = Duration::from_secs(8);
/// The longest wait for the last key to expire.
const PATIENCE: Duration = Duration::from_secs(60);

/// The results of a round.
struct Shown {
    /// From the last deadline until no key was left.
    gone_us: f64,
    pings: Latency,
    cpu_us: f64,
}

pub fn measure(with: &Run) {
    let mut report = Report::new("expiry", "A million deadlines in one second", with.quick);
    report.say(
        "1,000,000 keys have deadlines all over one second. `gone` is the time from the last deadline until DBSIZE says 0. The latency of PING \
         is that of one client, which asks all the time from the first deadline until then.",
    );
    let count = with.size(LOCKS);
    let mut rows = Vec::new();
    let mut headroom = HEADROOM.mul_f64((count as f64 / LOCKS as f64).max(0.1));
    for &kind in &with.kinds {
        let mut found = [Vec::new(), Vec::new()];
        for _ in 0..with.rounds(ROUNDS) {
            let strings = |n: usize, ttl: u128| format!("SET {} {} NX PX {ttl}", key(n), token(n));
            let locks = |n: usize, ttl: u128| format!("LOCK.ACQUIRE {} {} {ttl}", key(n), token(n));
            found[0].push(expire(kind, count, &mut headroom, strings));
            found[1].push(expire(kind, count, &mut headroom, locks));
        }
        let gone = |shown: &[Shown]| shown.iter().map(|shown| shown.gone_us).collect::<Vec<_>>();
        let [theirs, ours] = [gone(&found[0]), gone(&found[1])];
        for (what, rounds) in ["strings", "locks"].into_iter().zip(&found) {
            let gone = Spread::of(&gone(rounds));
            let cpu: Vec<f64> = rounds
                .iter()
                .map(|shown| shown.cpu_us / count as f64)
                .collect();
            let cpu = Spread::of(&cpu);
            let mut pings = Latency::new();
            rounds.iter().for_each(|shown| pings.add(&shown.pings));
            let mut row = vec![name(kind).to_string(), what.to_string(), gone_shown(&gone)];
            for (share, at) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
                report.figure(
                    kind,
                    &format!("PING {share} µs"),
                    what,
                    Spread::of(&[pings.at(at)]),
                );
                row.push(shown_us(pings.at(at)));
            }
            row.push(cpu.shown(2));
            report.figure(kind, "gone after the last deadline, µs", what, gone);
            report.figure(kind, "server CPU µs per key", what, cpu);
            println!("{}", row.join(" | "));
            rows.push(row);
        }
        // The measurement starts at the first deadline, so that no key is gone before it and a
        // ratio is meaningful.
        let whole = |gone: Vec<f64>| gone.into_iter().map(|us| us + 1e6).collect::<Vec<_>>();
        let ratio = Spread::of_ratios(&whole(ours), &whole(theirs));
        let goal = "1,000,000 locks gone against as many strings, from the first deadline on";
        report.goal(kind, goal, "", Bound::AtMost(1.0), ratio);
    }
    report.table(
        &[
            "server",
            "keys",
            "gone after the last deadline",
            "PING p50",
            "p99",
            "max",
            "server CPU µs per key",
        ],
        &rows,
    );
    report.write();
}

fn gone_shown(gone: &Spread) -> String {
    let Spread { median, low, high } = *gone;
    format!(
        "{} ({} to {})",
        shown_us(median),
        shown_us(low),
        shown_us(high)
    )
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn expire(
    kind: Kind,
    count: usize,
    headroom: &mut Duration,
    line: impl Fn(usize, u128) -> String,
) -> Shown {
    let (mut fixture, first) = loop {
        let mut fixture = Fixture::start(kind, &[]);
        let first = now() + *headroom;
        fill(&mut fixture, count, first, &line);
        if now() < first {
            break (fixture, first);
        }
        println!("Not filled in {headroom:?}: once more, with more time.");
        *headroom *= 2;
        assert!(*headroom < PATIENCE, "filling takes for ever");
    };
    assert_eq!(fixture.control.int("DBSIZE"), count as i64);
    thread::sleep(first.saturating_sub(now()));
    let cpu = fixture.cpu_us();
    let is_over = AtomicBool::new(false);
    let mut other = Connection::to(fixture.server.port);
    let (gone, pings) = thread::scope(|scope| {
        let pings = scope.spawn(|| ping(&mut other, &is_over));
        let gone = wait_until_empty(&mut fixture.control);
        is_over.store(true, Ordering::Relaxed);
        (gone, pings.join().unwrap())
    });
    let last = first + Duration::from_secs(1);
    Shown {
        gone_us: gone.saturating_sub(last).as_secs_f64() * 1e6,
        pings,
        cpu_us: fixture.cpu_us() - cpu,
    }
}

/// Deadlines in random order, as those of many clients are.
fn fill(
    fixture: &mut Fixture,
    count: usize,
    first: Duration,
    line: &impl Fn(usize, u128) -> String,
) {
    let mut clients = fixture.connections(1);
    for start in (0..count).step_by(BATCH) {
        let since = now().as_millis();
        let requests = Requests::of((start..count.min(start + BATCH)).map(|n| {
            let deadline = first.as_millis() + (n * 7919 % 1000) as u128;
            line(n, deadline.saturating_sub(since).max(1))
        }));
        let tally = run(&mut clients, &requests, BATCH);
        assert_eq!(tally.yes, requests.len());
    }
}

fn ping(connection: &mut Connection, is_over: &AtomicBool) -> Latency {
    let mut latency = Latency::new();
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        connection.send(&packed(&["PING"]));
        connection.receive(1);
        latency.record(begin.elapsed());
        thread::sleep(Duration::from_micros(500));
    }
    latency
}

/// The instant at which the server had no key any more.
fn wait_until_empty(control: &mut Client) -> Duration {
    let begin = Instant::now();
    loop {
        if control.int("DBSIZE") == 0 {
            return now();
        }
        assert!(begin.elapsed() < PATIENCE, "keys do not expire");
        thread::sleep(Duration::from_millis(10));
    }
}
