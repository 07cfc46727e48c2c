//! What waiting costs, on every server: `make bench`.
//!
//! - hand-offs per second, fairness and server CPU with 2 to 256 clients on one lock that hold it for no time at all, beside
//!   the ceiling of blocked clients: a one-element list, BLPOP to take and LPUSH to give, in the same run;
//! - how late a deadline hands the lock on, by the server's own clock;
//! - what a waiting client costs in memory, beside one that is blocked in BLPOP.

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Client, Kind, Reply, Server};

const SERVERS: [Kind; 4] = [
    Kind::Redis6_2,
    Kind::Redis7_0,
    Kind::Redis8_2,
    Kind::Valkey8_0,
];
const CLIENTS: [usize; 4] = [2, 16, 64, 256];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(1_500);
const DEADLINES: usize = 300;
const WAITERS: usize = 500;

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Lock,
    List,
}

impl Protocol {
    fn take(self, token: &str) -> String {
        match self {
            Self::Lock => format!("LOCK.ACQUIRE bench:lock {token} 60000 BLOCK 0"),
            Self::List => "BLPOP bench:list 0".into(),
        }
    }

    fn give(self, token: &str) -> String {
        match self {
            Self::Lock => format!("LOCK.RELEASE bench:lock {token}"),
            Self::List => "LPUSH bench:list x".into(),
        }
    }
}

/// What one round has shown.
#[derive(Clone, Copy)]
struct Round {
    per_second: f64,
    jain: f64,
    cpu_us: f64,
    commands: f64,
}

fn main() {
    println!("| server | clients | hand-offs/s (spread) | BLPOP ceiling/s | ratio | Jain | commands each | CPU µs each | ceiling's |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for kind in SERVERS {
        for clients in CLIENTS {
            contention(kind, clients);
        }
    }
    println!("\n| server | deadline to grant, µs: p50 | p99 | max | early |");
    println!("| --- | --- | --- | --- | --- |");
    SERVERS.into_iter().for_each(lateness);
    println!("\n| server | bytes per waiting client | blocked in BLPOP | idle |");
    println!("| --- | --- | --- | --- |");
    SERVERS.into_iter().for_each(memory);
}

fn contention(kind: Kind, clients: usize) {
    let server = Server::start(kind);
    let (mut lock, mut list) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        lock.push(round(&server, clients, Protocol::Lock));
        list.push(round(&server, clients, Protocol::List));
    }
    let all: Vec<f64> = lock.iter().map(|round| round.per_second).collect();
    let of = |rounds: &[Round], what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    let (ours, theirs) = (of(&lock, |r| r.per_second), of(&list, |r| r.per_second));
    println!(
        "| {kind:?} | {clients} | {ours:.0} ({:.0} to {:.0}) | {theirs:.0} | {:.2} | {:.4} | {:.2} | {:.1} | {:.1} |",
        all.iter().copied().fold(f64::INFINITY, f64::min),
        all.iter().copied().fold(0.0, f64::max),
        ours / theirs,
        of(&lock, |r| r.jain),
        of(&lock, |r| r.commands),
        of(&lock, |r| r.cpu_us),
        of(&list, |r| r.cpu_us),
    );
}

fn round(server: &Server, clients: usize, protocol: Protocol) -> Round {
    let mut control = server.client();
    control.call("FLUSHALL");
    control.call("LPUSH bench:list x");
    let stop = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(clients + 1));
    let workers: Vec<_> = (0..clients)
        .map(|n| {
            let (stop, start) = (Arc::clone(&stop), Arc::clone(&start));
            let mut client = server.client();
            thread::spawn(move || {
                let token = format!("{n:036}");
                let (take, give) = (protocol.take(&token), protocol.give(&token));
                start.wait();
                let mut taken = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    assert!(!matches!(client.call(&take), Reply::Nil | Reply::Error(_)));
                    taken += 1;
                    client.call(&give);
                }
                taken
            })
        })
        .collect();
    let (cpu, commands) = (cpu_us(&mut control), count(&mut control));
    start.wait();
    let begin = Instant::now();
    thread::sleep(ROUND);
    stop.store(true, Ordering::Relaxed);
    let taken: Vec<f64> = workers
        .into_iter()
        .map(|w| w.join().unwrap() as f64)
        .collect();
    let seconds = begin.elapsed().as_secs_f64();
    let sum: f64 = taken.iter().sum();
    let squares: f64 = taken.iter().map(|n| n * n).sum();
    Round {
        per_second: sum / seconds,
        jain: sum * sum / (squares * clients as f64),
        cpu_us: (cpu_us(&mut control) - cpu) / sum,
        commands: (count(&mut control) - commands) / sum,
    }
}

/// The server's CPU time in microseconds.
fn cpu_us(control: &mut Client) -> f64 {
    let part = |control: &mut Client, field| control.info(field).parse::<f64>().unwrap() * 1e6;
    part(control, "used_cpu_user") + part(control, "used_cpu_sys")
}

fn count(control: &mut Client) -> f64 {
    control.info("total_commands_processed").parse().unwrap()
}

/// A fence is the microsecond of its grant by the server's clock, so two of them tell how late the second one was.
fn lateness(kind: Kind) {
    const TTL_MS: i64 = 15;
    let server = Server::start(kind);
    let (mut dead, mut next) = (server.client(), server.client());
    let mut late: Vec<f64> = (0..DEADLINES)
        .map(|_| {
            let first = dead.int(&format!("LOCK.ACQUIRE k dead {TTL_MS}"));
            let second = next.int("LOCK.ACQUIRE k next 60000 BLOCK 0");
            next.call("LOCK.RELEASE k next");
            // The deadline's own millisecond still counts.
            (second - (first / 1000 + TTL_MS + 1) * 1000) as f64
        })
        .collect();
    let early = late.iter().filter(|late| **late < 0.0).count();
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    println!(
        "| {kind:?} | {:.0} | {:.0} | {:.0} | {early} |",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn memory(kind: Kind) {
    let waiting = bytes_per_client(kind, Some("LOCK.ACQUIRE k waiter 60000 BLOCK 0"));
    let popping = bytes_per_client(kind, Some("BLPOP list 0"));
    let idle = bytes_per_client(kind, None);
    println!("| {kind:?} | {waiting:.0} | {popping:.0} | {idle:.0} |");
}

fn bytes_per_client(kind: Kind, line: Option<&str>) -> f64 {
    let server = Server::start(kind);
    let mut control = server.client();
    control.int("LOCK.ACQUIRE k holder 60000");
    let used = |control: &mut Client| control.info("used_memory").parse::<f64>().unwrap();
    let before = used(&mut control);
    let mut idle = Vec::new();
    let mut blocked = Vec::new();
    for _ in 0..WAITERS {
        match line {
            Some(line) => blocked.push(server.later(line)),
            None => idle.push(server.client()),
        }
    }
    harness::wait_for("all to block", || {
        (server.blocked_clients() as usize == blocked.len()).then_some(())
    });
    (used(&mut control) - before) / WAITERS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
