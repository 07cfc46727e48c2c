//! The module at scale on one machine: 10,000,000 locks here, a million waiters without a
//! connection in `scale_waiters.rs`. Of each work it tells the cost and the longest turn of the
//! server's event loop.

use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::fixture::{name, Fixture, WITHOUT_LIMITS};
use crate::harness::{Kind, Setup};
use crate::load::{key, run, token, Connection, Requests};
use crate::memory::settled;
use crate::report::{Bound, Report};
use crate::stats::{shown_us, Spread};
use crate::turns::{Longest, Turns};
use crate::Run;

const LOCKS: usize = 10_000_000;
/// How many deadlines lie within one second.
const EXPIRING: usize = 1_000_000;
const FEW: usize = 1_000;
const PAIRS: usize = 16_384;
const ROUNDS: usize = 5;
/// The number of requests in one send.
pub const PIPELINE: usize = 500;
/// The number of requests that are rendered at once.
pub const CHUNK: usize = 50_000;
/// A turn that is the module's own doing takes no longer.
const MOST_US: f64 = 10_000.0;
/// The longest wait for the last key to expire.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that measures its turns, with one connection.
pub struct Scene {
    pub fixture: Fixture,
    pub turns: Turns,
    pub connection: Connection,
}

/// What some work has cost.
pub struct Cost {
    pub what: String,
    pub count: usize,
    /// The processor time of the thread that runs commands.
    pub cpu_us: f64,
    pub longest: Longest,
}

impl Scene {
    pub fn start(kind: Kind) -> Self {
        let turns = Turns::new();
        let setup = turns.setup(Setup::with_module(&WITHOUT_LIMITS));
        // A million messages at once are more than a subscriber may have by default.
        let limit = ["--client-output-buffer-limit", "pubsub", "0", "0", "0"];
        let options = [&limit[..], &["--enable-debug-command", "yes"]].concat();
        let fixture = Fixture::start_as(kind, setup, &options);
        let connection = Connection::to(fixture.server.port);
        // 10,000,000 are saved and loaded in one request.
        connection.be_patient(5 * PATIENCE);
        Self {
            fixture,
            turns,
            connection,
        }
    }

    /// Sends all lines, a part of them at a time.
    pub fn send(&mut self, count: usize, line: impl Fn(usize) -> String) {
        for first in (0..count).step_by(CHUNK) {
            let requests = Requests::of((first..count.min(first + CHUNK)).map(&line));
            let tally = run(
                std::slice::from_mut(&mut self.connection),
                &requests,
                PIPELINE,
            );
            assert_eq!(tally.errors, 0);
        }
    }

    pub fn measure(&mut self, what: &str, count: usize, work: impl FnOnce(&mut Self)) -> Cost {
        let before = self.fixture.cpu_us();
        self.turns.forget();
        work(self);
        let cpu_us = self.fixture.cpu_us() - before;
        Cost {
            what: what.into(),
            count,
            cpu_us,
            longest: self.turns.longest(),
        }
    }
}

impl Cost {
    pub fn each_us(&self) -> f64 {
        self.cpu_us / self.count as f64
    }

    /// Its row: the server, what was done to how many, the cost of each, the turns.
    pub fn row(&self, kind: Kind, of: &str) -> Vec<String> {
        let row = vec![
            name(kind).to_string(),
            of.to_string(),
            self.what.clone(),
            self.count.to_string(),
            format!("{:.2}", self.each_us()),
            shown_us(self.longest.cpu_us),
            self.longest.long_ones.to_string(),
        ];
        println!("{}, {}", row.join(" | "), shown_us(self.longest.wall_us));
        row
    }

    pub fn figures(&self, report: &mut Report, kind: Kind, of: &str, is_ours: bool) {
        let subject = format!("{of}, {}", self.what);
        let cost = Spread::of(&[self.each_us()]);
        report.figure(kind, "server CPU µs each", &subject, cost);
        let longest = Spread::of(&[self.longest.cpu_us]);
        match is_ours {
            true => {
                let goal = "longest turn of the event loop, CPU µs";
                report.goal(kind, goal, &subject, Bound::AtMost(MOST_US), longest);
            }
            false => report.figure(kind, "longest turn, CPU µs", &subject, longest),
        }
    }
}

/// The columns of [`Cost::row`].
pub const COLUMNS: [&str; 7] = [
    "server",
    "of",
    "work",
    "number",
    "CPU µs each",
    "longest turn",
    "turns over 10 ms",
];

pub fn measure(with: &Run) {
    let mut report = Report::new("scale", "10,000,000 locks", with.quick);
    report.say(MEASURE);
    locks(with, &kinds(with), &mut report);
    report.write();
}

pub const MEASURE: &str = "A turn is what the server's main thread does between two waits for events, in its processor time: on a shared machine the clock also shows what others do. \
    A few lines of C, preloaded into the server, measure it. One connection sends 500 requests at a time. Keys have 16 bytes, tokens 36.";

/// The newest server of each family, and the oldest that is still in use.
pub fn kinds(with: &Run) -> Vec<Kind> {
    let kinds = with.kinds.iter().map(|kind| match kind {
        Kind::Valkey8_0 => Kind::Valkey9,
        kind => *kind,
    });
    kinds.collect()
}

/// Fewer than `full` in a quick run, which only shows that all works.
pub fn sized(with: &Run, full: usize) -> usize {
    match with.quick {
        true => full / 500,
        false => full,
    }
}

/// Locks, or strings for comparison.
#[derive(Clone, Copy, PartialEq)]
pub enum Of {
    Locks,
    Strings,
}

impl Of {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Strings => "strings",
        }
    }

    pub fn take_key(self, key: &str, token: &str, ms: u128) -> String {
        match self {
            Self::Locks => format!("LOCK.ACQUIRE {key} {token} {ms}"),
            Self::Strings => format!("SET {key} {token} NX PX {ms}"),
        }
    }

    pub fn give_key(self, key: &str, token: &str) -> String {
        match self {
            Self::Locks => format!("LOCK.RELEASE {key} {token}"),
            Self::Strings => format!("DEL {key}"),
        }
    }

    fn take(self, n: usize, ms: u128) -> String {
        self.take_key(&key(n), &token(n), ms)
    }

    fn give(self, n: usize) -> String {
        self.give_key(&key(n), &token(n))
    }
}

/// What both sides are compared by.
struct Found {
    bytes: f64,
    few_us: f64,
    many_us: f64,
    save_us: f64,
    load_us: f64,
}

fn locks(with: &Run, kinds: &[Kind], report: &mut Report) {
    let count = sized(with, LOCKS);
    let mut rows = Vec::new();
    let mut costs = Vec::new();
    for &kind in kinds {
        let sides = [Of::Locks, Of::Strings].map(|of| {
            let (found, here) = side(with, kind, of, count);
            for cost in here {
                // What the server does by itself is the measure for what it does to locks.
                cost.figures(report, kind, of.name(), false);
                costs.push(cost.row(kind, of.name()));
            }
            let mut row = vec![name(kind).to_string(), of.name().into()];
            row.push(format!("{:.0}", found.bytes));
            row.extend([found.few_us, found.many_us].map(|us| format!("{us:.2}")));
            row.extend([found.save_us, found.load_us].map(|us| format!("{us:.2}")));
            println!("{}", row.join(" | "));
            rows.push(row);
            for (measure, value) in [
                ("bytes of each", found.bytes),
                ("pair beside 1,000, server CPU µs", found.few_us),
                ("pair beside 10,000,000, server CPU µs", found.many_us),
                ("RDB save of each, server CPU µs", found.save_us),
                ("RDB load of each, server CPU µs", found.load_us),
            ] {
                report.figure(kind, measure, of.name(), Spread::of(&[value]));
            }
            found
        });
        let growth = |found: &Found| found.many_us / found.few_us;
        let ratio = growth(&sides[0]) / growth(&sides[1]);
        let goal = "growth of a pair's CPU from 1,000 to 10,000,000 locks against strings";
        report.goal(kind, goal, "", Bound::AtMost(1.1), Spread::of(&[ratio]));
    }
    report.say(&format!(
        "### {count} locks\n\nThe table shows bytes of used_memory, and µs of the server's CPU: to take one and give it back beside 1,000 and beside all, to save and to load each. \
         Beside locks are as many strings with a ttl."
    ));
    report.table(
        &[
            "server",
            "of",
            "bytes",
            "pair beside 1,000",
            "pair beside all",
            "save",
            "load",
        ],
        &rows,
    );
    report.say("### Turns with that many locks");
    report.table(&COLUMNS, &costs);
}

fn pair_us(with: &Run, scene: &mut Scene, of: Of, from: usize) -> f64 {
    let count = with.size(PAIRS);
    let mut costs = Vec::new();
    for round in 0..=with.rounds(ROUNDS) {
        let before = scene.fixture.cpu_us();
        scene.send(2 * count, |n| match n % 2 {
            0 => of.take(from + n / 2, 6_000_000),
            _ => of.give(from + n / 2),
        });
        if round > 0 {
            costs.push((scene.fixture.cpu_us() - before) / count as f64);
        }
    }
    Spread::of(&costs).median
}

fn side(with: &Run, kind: Kind, of: Of, count: usize) -> (Found, Vec<Cost>) {
    let mut scene = Scene::start(kind);
    // The connection's buffers have reached their size before the measurement.
    scene.send(4_096, |_| "PING".into());
    let mut costs = vec![expire(with, &mut scene, of)];
    let empty = settled(&mut scene.fixture);
    scene.send(FEW.min(count), |n| of.take(n, 60_000_000));
    let few_us = pair_us(with, &mut scene, of, count);
    let first = FEW.min(count);
    let rest = count - first;
    costs.push(scene.measure("take", rest, |scene| {
        scene.send(rest, |n| of.take(first + n, 60_000_000));
    }));
    let bytes = (settled(&mut scene.fixture) - empty) / count as f64;
    let many_us = pair_us(with, &mut scene, of, count);
    let before = scene.fixture.cpu_us();
    println!("{}: {count} {} are saved", name(kind), of.name());
    scene.send(1, |_| "SAVE".into());
    let save_us = (scene.fixture.cpu_us() - before) / count as f64;

    let mut other = Scene::start(kind);
    let file = "dump.rdb";
    let [from, to] = [&scene, &other].map(|scene| scene.fixture.server.dir().join(file));
    fs::rename(from, to).expect("a file of the data");
    drop(scene);
    let before = other.fixture.cpu_us();
    println!("They are loaded");
    other.send(1, |_| "DEBUG RELOAD NOSAVE".into());
    let load_us = (other.fixture.cpu_us() - before) / count as f64;
    assert_eq!(other.fixture.control.int("DBSIZE"), count as i64);
    costs.push(other.measure("FLUSHALL", count, |scene| {
        scene.send(1, |_| "FLUSHALL SYNC".into());
    }));
    let found = Found {
        bytes,
        few_us,
        many_us,
        save_us,
        load_us,
    };
    (found, costs)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// All expire within one second. Beside ten times as many others the server itself leaves most of
/// them for minutes: it searches for those that are over only while it finds many.
fn expire(with: &Run, scene: &mut Scene, of: Of) -> Cost {
    let count = sized(with, EXPIRING);
    let mut headroom = Duration::from_secs(20).mul_f64((count as f64 / EXPIRING as f64).max(0.1));
    let first = loop {
        let first = now() + headroom;
        scene.send(count, |n| {
            let deadline = first.as_millis() + (n * 7919 % 1000) as u128;
            let ms = deadline.saturating_sub(now().as_millis());
            of.take(n, ms.max(1))
        });
        if now() < first {
            break first;
        }
        println!("Not filled in {headroom:?}: once more, with more time.");
        scene.send(1, |_| "FLUSHALL SYNC".into());
        headroom *= 2;
        assert!(headroom < 4 * PATIENCE, "filling takes for ever");
    };
    thread::sleep(first.saturating_sub(now()));
    scene.measure("expire within 1 s", count, |scene| {
        let begin = Instant::now();
        while scene.fixture.control.int("DBSIZE") > 0 {
            assert!(begin.elapsed() < PATIENCE, "keys do not expire");
            thread::sleep(Duration::from_millis(10));
        }
    })
}
