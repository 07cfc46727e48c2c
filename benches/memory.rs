//! How much of the server's memory a lock, a reader and a waiter use.

use std::thread;
use std::time::Duration;

use crate::fixture::{name, Fixture};
use crate::harness::{packed, Kind};
use crate::load::{key, run, token, Connection, Requests};
use crate::report::{Bound, Report};
use crate::stats::Spread;
use crate::Run;

const KEYS: usize = 100_000;
const WAITERS: usize = 500;

pub fn measure(with: &Run) {
    let mut report = Report::new("memory", "Memory", with.quick);
    report.say(
        "The table shows bytes of used_memory for each of 100,000 keys (16 bytes, tokens 36). It also shows them for each of 100,000 readers of one key, \
         and for each of 500 clients that wait, with their connections.",
    );
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let count = with.size(KEYS);
        let string = stored(kind, count, |n| {
            format!("SET {} {} NX PX 6000000", key(n), token(n))
        });
        let lock = stored(kind, count, |n| {
            format!("LOCK.ACQUIRE {} {} 6000000", key(n), token(n))
        });
        let reader = stored(kind, count, |n| {
            format!("RWLOCK.RLOCK page {} 6000000", token(n))
        });
        let waiter = waiting(kind, Some("LOCK.ACQUIRE lock waiter 6000000 BLOCK 0"));
        let popping = waiting(kind, Some("BLPOP list 0"));
        let idle = waiting(kind, None);
        let ratio = lock / string;
        let values = [string, lock, reader, waiter, popping, idle];
        let mut row = vec![name(kind).to_string()];
        row.extend(values.map(|value| format!("{value:.0}")));
        row.insert(3, format!("{ratio:.2}"));
        rows.push(row);
        let names = [
            "string with a ttl",
            "lock",
            "reader",
            "waiter",
            "client in BLPOP",
            "idle client",
        ];
        for (name, value) in names.into_iter().zip(values) {
            report.figure(kind, "bytes", name, Spread::of(&[value]));
        }
        let goal = "memory of a held lock against a string with a ttl";
        report.goal(kind, goal, "", Bound::AtMost(1.25), Spread::of(&[ratio]));
    }
    report.table(
        &[
            "server",
            "string with a ttl",
            "lock",
            "ratio",
            "reader",
            "waiter",
            "client in BLPOP",
            "idle client",
        ],
        &rows,
    );
    report.write();
}

fn stored(kind: Kind, count: usize, line: impl Fn(usize) -> String) -> f64 {
    let mut fixture = Fixture::start(kind, &[]);
    let mut clients = fixture.connections(1);
    // The connection's buffers have reached their size before the measurement.
    run(
        &mut clients,
        &Requests::of((0..4096).map(|_| "PING".into())),
        64,
    );
    let before = fixture.used_memory();
    let tally = run(&mut clients, &Requests::of((0..count).map(line)), 64);
    assert_eq!(tally.yes, count);
    (settled(&mut fixture) - before) / count as f64
}

fn waiting(kind: Kind, line: Option<&str>) -> f64 {
    let mut fixture = Fixture::start(kind, &[]);
    fixture.control.int("LOCK.ACQUIRE lock holder 6000000");
    let before = fixture.used_memory();
    let mut connections: Vec<Connection> = fixture.connections(WAITERS);
    match line {
        Some(line) => {
            let request = Requests::of([line.to_string()]);
            connections
                .iter_mut()
                .for_each(|connection| connection.send(request.bytes()));
            fixture.wait_for_blocked(WAITERS);
        }
        // A connected client is not necessarily accepted yet.
        None => connections.iter_mut().for_each(|connection| {
            connection.send(&packed(&["PING"]));
            connection.receive(1);
        }),
    }
    (fixture.used_memory() - before) / WAITERS as f64
}

/// The memory in use after the server has finished resizing its hash tables. It does a millisecond
/// of that in each round: at 10 rounds a second ten million keys take minutes.
pub fn settled(fixture: &mut Fixture) -> f64 {
    fixture.control.text("CONFIG SET hz 500");
    let used = at_rest(fixture);
    fixture.control.text("CONFIG SET hz 10");
    used
}

fn at_rest(fixture: &mut Fixture) -> f64 {
    let mut last = fixture.used_memory();
    let mut same = 0;
    while same < 5 {
        thread::sleep(Duration::from_millis(120));
        let used = fixture.used_memory();
        same = if used == last { same + 1 } else { 0 };
        last = used;
    }
    last
}
