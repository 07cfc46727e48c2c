//! Clients that need several locks at once: all in one request, or one after the other.

use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{name, Fixture};
use crate::load::{key, token, Connection, Requests};
use crate::report::{Bound, Report};
use crate::stats::{jain, shown_us, Latency, Spread};
use crate::Run;

const CLIENTS: usize = 12;
const KEYS: usize = 5;
const HOLDS_MS: [u64; 3] = [0, 1, 10];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);

/// How a client comes by its locks.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// LOCK.MACQUIRE BLOCK.
    Together,
    /// LOCK.ACQUIRE of one after the other, in any order. If one is taken, the client gives up those
    /// that it has, and begins again after a random pause of up to this many milliseconds.
    Retry(u64),
    /// LOCK.ACQUIRE BLOCK of one after the other, in an order on which all clients have agreed.
    InOrder,
}

/// The longest pause of a retry differs, because the best one depends on the time of a hold.
const WAYS: [Way; 5] = [
    Way::Together,
    Way::Retry(1),
    Way::Retry(10),
    Way::Retry(100),
    Way::InOrder,
];

impl Way {
    fn name(self) -> String {
        match self {
            Self::Together => "LOCK.MACQUIRE BLOCK".into(),
            Self::Retry(most) => format!("take and retry, pause up to {most} ms"),
            Self::InOrder => "LOCK.ACQUIRE BLOCK in order".into(),
        }
    }
}

/// A sequence of numbers that is the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    /// Two or three different keys, in any order.
    fn keys(&mut self) -> Vec<usize> {
        let mut keys: Vec<usize> = (0..KEYS).collect();
        let count = 2 + self.below(2);
        (0..count)
            .map(|_| keys.swap_remove(self.below(keys.len())))
            .collect()
    }
}

/// The results of one client in one round.
struct Got {
    taken: u64,
    commands: u64,
    waits: Latency,
}

struct One {
    connection: Connection,
    token: String,
    random: Random,
    commands: u64,
}

impl One {
    fn new(port: u16, n: usize) -> Self {
        Self {
            connection: Connection::to(port),
            token: token(n),
            random: Random(0x9E37_79B9_7F4A_7C15 ^ (n as u64 + 1) << 32),
            commands: 0,
        }
    }

    /// Sends these lines at once. Whether all replies are other than null.
    fn all_say_yes(&mut self, lines: Vec<String>) -> bool {
        let requests = Requests::of(lines);
        self.commands += requests.len() as u64;
        self.connection.send(requests.bytes());
        let tally = self.connection.receive(requests.len());
        assert_eq!(tally.errors, 0);
        tally.yes == requests.len()
    }

    fn release(&mut self, keys: &[usize]) {
        let token = &self.token;
        let lines = keys
            .iter()
            .map(|n| format!("LOCK.RELEASE {} {token}", key(*n)));
        let lines = lines.collect();
        assert!(self.all_say_yes(lines), "it was held");
    }

    fn acquire(&mut self, n: usize, wait: &str) -> bool {
        let line = format!("LOCK.ACQUIRE {} {} 600000 {wait}", key(n), self.token);
        self.all_say_yes(vec![line])
    }

    /// Takes all keys. False if the time was up before.
    fn take(&mut self, way: Way, keys: &mut [usize], end: Instant) -> bool {
        match way {
            Way::Together => {
                let names: Vec<_> = keys.iter().map(|n| key(*n)).collect();
                let (count, names) = (names.len(), names.join(" "));
                let token = &self.token;
                let line = format!("LOCK.MACQUIRE {count} {names} {token} 600000 BLOCK 0");
                self.all_say_yes(vec![line])
            }
            Way::InOrder => {
                keys.sort_unstable();
                keys.iter().all(|n| self.acquire(*n, "BLOCK 0"))
            }
            Way::Retry(most_ms) => {
                while Instant::now() < end {
                    let refused = keys.iter().position(|n| !self.acquire(*n, ""));
                    let Some(had) = refused else {
                        return true;
                    };
                    if had > 0 {
                        self.release(&keys[..had]);
                    }
                    let pause = self.random.below(1000 * most_ms as usize);
                    thread::sleep(Duration::from_micros(pause as u64));
                }
                false
            }
        }
    }

    fn work(mut self, way: Way, hold: Duration, end: Instant) -> Got {
        let mut waits = Latency::new();
        let mut taken = 0;
        while Instant::now() < end {
            let mut keys = self.random.keys();
            let since = Instant::now();
            if !self.take(way, &mut keys, end) {
                break;
            }
            let now = Instant::now();
            if now < end {
                taken += 1;
                waits.record(now - since);
            }
            if !hold.is_zero() {
                thread::sleep(hold);
            }
            self.release(&keys);
        }
        Got {
            taken,
            commands: self.commands,
            waits,
        }
    }
}

/// The figures of one way, each once per round.
#[derive(Default)]
struct Shown {
    per_second: Vec<f64>,
    waits: [Vec<f64>; 3],
    jain: Vec<f64>,
    commands: Vec<f64>,
}

fn round(fixture: &mut Fixture, way: Way, hold_ms: u64, time: Duration, shown: &mut Shown) {
    fixture.clear();
    let port = fixture.server.port;
    let clients: Vec<One> = (0..CLIENTS).map(|n| One::new(port, n)).collect();
    let begin = Instant::now();
    let hold = Duration::from_millis(hold_ms);
    let threads = clients
        .into_iter()
        .map(|one| thread::spawn(move || one.work(way, hold, begin + time)));
    let threads: Vec<_> = threads.collect();
    let mut waits = Latency::new();
    let mut commands = 0;
    let mut taken = Vec::new();
    for thread in threads {
        let got = thread.join().expect("a client that works");
        taken.push(got.taken as f64);
        commands += got.commands;
        waits.add(&got.waits);
    }
    let sum: f64 = taken.iter().sum();
    shown.per_second.push(sum / time.as_secs_f64());
    shown.commands.push(commands as f64 / sum.max(1.0));
    shown.jain.push(jain(&taken));
    for (all, share) in shown.waits.iter_mut().zip([0.5, 0.99, 1.0]) {
        all.push(waits.at(share));
    }
}

pub fn measure(with: &Run) {
    let mut report = Report::new("several", "Several locks at once", with.quick);
    report.say(&format!(
        "{CLIENTS} clients and {KEYS} keys. Each client takes 2 or 3 of them at random, holds them, releases them in one pipeline, and comes again. Take and retry is LOCK.ACQUIRE of one after the other. \
         If another client has one, the client releases those that it has, and begins again after a random pause of up to the given time. In order is LOCK.ACQUIRE BLOCK of one after the other in the order of their names. It is free of deadlocks \
         only if every client keeps to it. Commands are those that the clients send for each acquisition.",
    ));
    for hold in HOLDS_MS {
        let mut rows = Vec::new();
        for &kind in &with.kinds {
            let mut fixture = Fixture::start(kind, &[]);
            let mut all = WAYS.map(|way| (way, Shown::default()));
            let time = if with.quick { ROUND / 10 } else { ROUND };
            for _ in 0..with.rounds(ROUNDS) {
                for (way, shown) in &mut all {
                    round(&mut fixture, *way, hold, time, shown);
                }
            }
            let ours = &all[0].1.per_second;
            for (way, shown) in &all {
                let subject = format!("{}, held {hold} ms", way.name());
                let per_second = Spread::of(&shown.per_second);
                report.figure(kind, "acquisitions/s", &subject, per_second);
                let ratio = Spread::of_ratios(ours, &shown.per_second);
                if *way != Way::Together {
                    let measure = "acquisitions/s of LOCK.MACQUIRE against another way";
                    report.figure(kind, measure, &subject, ratio);
                }
                let waits = shown.waits.each_ref().map(|waits| Spread::of(waits).median);
                let mut row = vec![name(kind).to_string(), way.name(), per_second.shown(0)];
                row.push(ratio.shown(2));
                row.extend(waits.map(shown_us));
                row.push(format!("{:.4}", Spread::of(&shown.jain).median));
                row.push(format!("{:.1}", Spread::of(&shown.commands).median));
                println!("{}", row.join(" | "));
                rows.push(row);
            }
            if hold <= 1 {
                let retries = all.iter().filter(|(way, _)| matches!(way, Way::Retry(_)));
                let ratios =
                    retries.map(|(way, shown)| (way, Spread::of_ratios(ours, &shown.per_second)));
                let best = ratios.min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
                let (way, ratio) = best.expect("a way to retry");
                let goal =
                    "acquisitions/s of several keys against take and retry with its best pause";
                let subject = format!("{}, held {hold} ms", way.name());
                report.goal(kind, goal, &subject, Bound::AtLeast(3.0), ratio);
            }
        }
        report.say(&format!("### Hold of {hold} ms"));
        report.table(
            &[
                "server",
                "how",
                "acquisitions/s",
                "MACQUIRE against it",
                "wait p50",
                "p99",
                "max",
                "Jain",
                "commands each",
            ],
            &rows,
        );
    }
    report.write();
}
