//! Whether the cost of an operation grows with the number of keys, holders or waiters.

use crate::fixture::{name, Fixture};
use crate::harness::{wait_for, Kind};
use crate::load::{key, run, token, Connection, Requests};
use crate::report::Report;
use crate::stats::Spread;
use crate::Run;

const HELD: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const ROUNDS: usize = 5;
const PAIRS: usize = 16_384;
/// The number of keys, and of clients that contend for each. Every waiting client needs a
/// connection, and a process may not have 110,000 of them. The last two cases are as close as
/// 20,000 connections get to 10,000 keys with 10 waiters.
const CONTENDED: [(usize, usize); 5] = [(10, 10), (100, 10), (1_000, 10), (1_600, 10), (8_000, 1)];
/// A holder and its waiters.
const LONGEST_LINE: usize = 11;
const HAND_OFFS: usize = 4_000;
/// The number of hand-offs in progress at once.
const AT_ONCE: usize = 10;

pub fn measure(with: &Run) {
    let mut report = Report::new("growth", "Growth", with.quick);
    held(with, &mut report);
    contended(with, &mut report);
    report.write();
}

/// The `n`-th element in an order that no cache can predict.
fn anywhere(n: usize, count: usize) -> usize {
    n * 7919 % count
}

fn held(with: &Run, report: &mut Report) {
    report.say(
        "### Held locks\n\nThe table shows µs of the server's CPU, -P 16, one connection, beside that many other held locks. The client takes a free lock and gives it back, \
         or renews one of the held ones. Beside it are as many strings: SET NX PX + DEL, and PEXPIRE.",
    );
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        for &held in &HELD[..if with.quick { 2 } else { HELD.len() }] {
            let fills: [fn(usize) -> String; 2] = [
                |n| format!("LOCK.ACQUIRE {} {} 6000000", key(n), token(n)),
                |n| format!("SET {} {} NX PX 6000000", key(n), token(n)),
            ];
            let mut fixtures = fills.map(|fill| {
                let fixture = Fixture::start(kind, &[]);
                let tally = run(
                    &mut fixture.connections(1),
                    &Requests::of((0..held).map(fill)),
                    100,
                );
                assert_eq!(tally.yes, held);
                fixture
            });
            let count = with.size(PAIRS);
            let other = |n: usize| (key(held + n / 2), token(n / 2));
            let workloads = [
                [
                    Requests::of((0..2 * count).map(|n| match (n % 2, other(n)) {
                        (0, (key, token)) => format!("LOCK.ACQUIRE {key} {token} 60000"),
                        (_, (key, token)) => format!("LOCK.RELEASE {key} {token}"),
                    })),
                    Requests::of((0..count).map(|n| {
                        let n = anywhere(n, held);
                        format!("LOCK.RENEW {} {} 6000000", key(n), token(n))
                    })),
                ],
                [
                    Requests::of((0..2 * count).map(|n| match (n % 2, other(n)) {
                        (0, (key, token)) => format!("SET {key} {token} NX PX 60000"),
                        (_, (key, _)) => format!("DEL {key}"),
                    })),
                    Requests::of(
                        (0..count).map(|n| format!("PEXPIRE {} 6000000", key(anywhere(n, held)))),
                    ),
                ],
            ];
            let mut costs = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
            let mut clients_of = [fixtures[0].connections(1), fixtures[1].connections(1)];
            for round in 0..=with.rounds(ROUNDS) {
                for which in 0..2 {
                    for (workload, costs) in workloads[which].iter().zip(&mut costs[which]) {
                        let before = fixtures[which].cpu_us();
                        let tally = run(&mut clients_of[which], workload, 16);
                        assert_eq!(tally.yes, workload.len());
                        if round > 0 {
                            costs.push((fixtures[which].cpu_us() - before) / count as f64);
                        }
                    }
                }
            }
            let mut row = vec![name(kind).to_string(), held.to_string()];
            for what in 0..2 {
                let [ours, theirs] = [&costs[0][what], &costs[1][what]];
                let ratio = Spread::of_ratios(ours, theirs);
                row.extend([ours, theirs].map(|costs| Spread::of(costs).shown(2)));
                row.push(format!("{:.2}", ratio.median));
                let measure = ["acquire + release", "renew"][what];
                let subject = format!("{held} held");
                report.figure(
                    kind,
                    &format!("{measure}, server CPU µs"),
                    &subject,
                    Spread::of(ours),
                );
                report.figure(
                    kind,
                    &format!("{}, server CPU µs", ["SET + DEL", "PEXPIRE"][what]),
                    &subject,
                    Spread::of(theirs),
                );
                report.figure(kind, &format!("{measure} against strings"), &subject, ratio);
            }
            println!("{}", row.join(" | "));
            rows.push(row);
        }
    }
    report.table(
        &[
            "server",
            "held",
            "ACQUIRE + RELEASE",
            "SET + DEL",
            "ratio",
            "RENEW",
            "PEXPIRE",
            "ratio",
        ],
        &rows,
    );
}

/// Clients that wait for many keys. Each key has its own queue.
struct Lines {
    /// By key, in the order of the queue. The first one holds the lock.
    members: Vec<Vec<Connection>>,
    at: Vec<usize>,
    take: fn(usize, usize) -> String,
    give: fn(usize, usize) -> String,
}

impl Lines {
    fn form(
        fixture: &mut Fixture,
        keys: usize,
        waiters: usize,
        take: fn(usize, usize) -> String,
        give: fn(usize, usize) -> String,
    ) -> Self {
        let mut members: Vec<Vec<Connection>> = Vec::new();
        for key in 0..keys {
            let mut line = fixture.connections(waiters + 1);
            for (n, member) in line.iter_mut().enumerate() {
                member.shrink();
                member.send(Requests::of([take(key, n)]).bytes());
                if n == 0 {
                    assert_eq!(member.receive(1).yes, 1);
                }
            }
            members.push(line);
            // Limited, so that the server's backlog of new connections does not overflow.
            if key % 16 == 15 || key == keys - 1 {
                fixture.wait_for_blocked((key + 1) * waiters);
            }
        }
        Self {
            at: vec![0; keys],
            members,
            take,
            give,
        }
    }

    /// The client that holds the key after `before` has released it. The replies may arrive
    /// separately.
    fn granted(&self, key: usize, before: usize) -> usize {
        let line = &self.members[key];
        wait_for("a grant", || {
            (0..line.len()).find(|n| *n != before && line[*n].has_reply())
        })
    }

    /// Hands these keys off, all at once. Only the holder of each key must be known: the others
    /// joined the queue in any order.
    fn hand_off(&mut self, keys: &[usize]) {
        for &key in keys {
            let at = self.at[key];
            self.members[key][at].send(Requests::of([(self.give)(key, at)]).bytes());
        }
        for &key in keys {
            let at = self.at[key];
            assert_eq!(self.members[key][at].receive(1).errors, 0);
            let granted = self.granted(key, at);
            assert_eq!(self.members[key][granted].receive(1).yes, 1);
            self.members[key][at].send(Requests::of([(self.take)(key, at)]).bytes());
            self.at[key] = granted;
        }
    }
}

/// The number of files and connections that this process may open.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let mut lines = limits.lines();
    let limit = lines.find_map(|line| line.strip_prefix("Max open files"));
    let soft = limit.and_then(|limit| limit.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(1024)
}

fn contended(with: &Run, report: &mut Report) {
    report.say(
        "### Contended locks\n\nThe table shows µs of the server's CPU for a hand-off (RELEASE, the grant, and the former holder's ACQUIRE … BLOCK 0). There are 10 of them at once, \
         on keys with that many waiters each. Beside it are LPUSH and BLPOP, one after the other.\n\nThe goal asks for 10,000 keys of 10 waiters. They are **not measured**. They would be 110,000 connections, and each is a file to the \
         server and to the load generator. A process may have 20,000 here. 100,000 waiters would also be 5 to 7 GB (54 to 74 KB each, see Memory). \
         1,600 keys of 10 waiters and 8,000 keys of 1 stand in their place.",
    );
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        for &(keys, waiters) in &CONTENDED[..if with.quick { 2 } else { CONTENDED.len() }] {
            if keys * (waiters + 1) + 200 > open_files() {
                report.say(&format!("{keys} keys of {waiters} waiters: more connections than this process may have."));
                continue;
            }
            // They run one after the other, because both at once would need too many connections.
            let ours = hand_offs(with, kind, keys, waiters, true);
            let theirs = hand_offs(with, kind, keys, waiters, false);
            let subject = format!("{keys} keys of {waiters} waiters");
            let ratio = Spread::of_ratios(&ours, &theirs);
            let (ours, theirs) = (Spread::of(&ours), Spread::of(&theirs));
            report.figure(kind, "hand-off, server CPU µs", &subject, ours);
            report.figure(kind, "LPUSH / BLPOP, server CPU µs", &subject, theirs);
            let row = vec![
                name(kind).to_string(),
                keys.to_string(),
                waiters.to_string(),
                ours.shown(1),
                theirs.shown(1),
                ratio.shown(2),
            ];
            println!("{}", row.join(" | "));
            rows.push(row);
        }
    }
    report.table(
        &["server", "keys", "waiters each", "lock", "list", "ratio"],
        &rows,
    );
}

fn hand_offs(with: &Run, kind: Kind, keys: usize, waiters: usize, locks: bool) -> Vec<f64> {
    let mut fixture = Fixture::start(kind, &["--maxclients", "19000"]);
    let mut lines = if locks {
        // A token that holds one lock and waits for another could close a cycle.
        fn own(key: usize, n: usize) -> String {
            token(key * LONGEST_LINE + n)
        }
        let take = |key, n| format!("LOCK.ACQUIRE lock:{key} {} 6000000 BLOCK 0", own(key, n));
        let give = |key, n| format!("LOCK.RELEASE lock:{key} {}", own(key, n));
        Lines::form(&mut fixture, keys, waiters, take, give)
    } else {
        let filled = Requests::of((0..keys).map(|key| format!("LPUSH list:{key} x")));
        run(&mut fixture.connections(1), &filled, 100);
        let take = |key, _| format!("BLPOP list:{key} 0");
        Lines::form(&mut fixture, keys, waiters, take, |key, _| {
            format!("LPUSH list:{key} x")
        })
    };
    let count = with.size(HAND_OFFS);
    let mut costs = Vec::new();
    for round in 0..=with.rounds(ROUNDS) {
        let before = fixture.cpu_us();
        for start in (0..count).step_by(AT_ONCE) {
            let some: Vec<usize> = (start..start + AT_ONCE)
                .map(|n| anywhere(n, keys))
                .collect();
            lines.hand_off(&some);
        }
        if round > 0 {
            costs.push((fixture.cpu_us() - before) / count as f64);
        }
    }
    costs
}
