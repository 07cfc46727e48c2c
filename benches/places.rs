//! Places in queues without a blocked client: whether the cost of entering, leaving and granting
//! grows with their number. Their memory is in `place_bytes.rs`.

use std::collections::VecDeque;

use crate::callgrind::Counted;
use crate::fixture::{name, Fixture, WITHOUT_LIMITS};
use crate::harness::Kind;
use crate::load::{key, run, token, Connection, Requests, Tally};
use crate::memory::settled;
use crate::report::{Bound, Report};
use crate::stats::Spread;
use crate::Run;

pub const COUNTS: [usize; 3] = [1_000, 100_000, 1_000_000];
const ROUNDS: usize = 5;
/// The number of places that enter, leave or are granted between two looks at the server's CPU
/// time. Less than the smallest number of places.
const BATCH: usize = 500;
/// The number of batches in a round.
const BATCHES: usize = 8;
/// The number of requests in one send.
const PIPELINE: usize = 50;
/// The number of requests that are rendered at once.
const CHUNK: usize = 100_000;

/// The work of a round.
const WORK: [&str; 4] = ["grant", "give up", "enter", "PTTL"];

/// Whether all places are in one queue.
#[derive(Clone, Copy, PartialEq)]
pub enum Keys {
    One,
    Own,
}

/// What listens.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    Notify,
    Absent,
}

impl Keys {
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one key",
            Self::Own => "own keys",
        }
    }
}

impl Way {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notify => "NOTIFY",
            Self::Absent => "absent",
        }
    }
}

/// A server, and what its work is measured in.
pub enum Meter {
    Cpu(Box<Fixture>),
    Instructions(Box<Counted>),
}

impl Meter {
    fn port(&self) -> u16 {
        match self {
            Self::Cpu(fixture) => fixture.server.port,
            Self::Instructions(counted) => counted.port(),
        }
    }

    /// The memory in use, where it is measured.
    fn memory(&mut self) -> f64 {
        match self {
            Self::Cpu(fixture) => settled(fixture),
            Self::Instructions(_) => 0.0,
        }
    }

    fn of(&mut self, work: impl FnOnce()) -> f64 {
        match self {
            Self::Cpu(fixture) => {
                let before = fixture.cpu_us();
                work();
                fixture.cpu_us() - before
            }
            Self::Instructions(counted) => {
                counted.instructions();
                work();
                counted.instructions()
            }
        }
    }
}

/// The queue of one key. An entry is a token, with the number of the place that it has taken. A
/// token that has left and come again leaves its old entry behind.
struct Queue {
    holder: usize,
    entries: VecDeque<(usize, u32)>,
}

/// Many places on one server, and the order in which they stand.
pub struct Places {
    connection: Connection,
    subscriber: Connection,
    way: Way,
    queues: Vec<Queue>,
    /// By token: the number of its place, the queue, and whether it waits.
    tokens: Vec<(u32, usize, bool)>,
}

impl Places {
    /// Fills the queues. Returns the bytes for each place, too.
    pub fn form(meter: &mut Meter, count: usize, keys: Keys, way: Way) -> (Self, f64) {
        let mut subscriber = Connection::to(meter.port());
        subscriber.send(Requests::of(["SUBSCRIBE grants".into()]).bytes());
        assert_eq!(subscriber.receive(1).yes, 1);
        let queues = if keys == Keys::One { 1 } else { count };
        let mut places = Self {
            connection: Connection::to(meter.port()),
            subscriber,
            way,
            queues: (0..queues)
                .map(|n| Queue {
                    holder: n,
                    entries: VecDeque::new(),
                })
                .collect(),
            tokens: (0..queues + count)
                .map(|n| (0, n % queues, false))
                .collect(),
        };
        // The connection's buffers have reached their size before the measurement.
        let pings = Requests::of((0..4096).map(|_| "PING".into()));
        run(places.connections(), &pings, PIPELINE);
        let held = |n| format!("LOCK.ACQUIRE {} {} 60000000", key(n), token(n));
        assert_eq!(places.send((0..queues).map(held)).yes, queues);
        let before = meter.memory();
        for first in (queues..queues + count).step_by(CHUNK) {
            let last = (queues + count).min(first + CHUNK);
            places.enter(&(first..last).collect::<Vec<_>>());
        }
        let bytes = (meter.memory() - before) / count as f64;
        (places, bytes)
    }

    fn connections(&mut self) -> &mut [Connection] {
        std::slice::from_mut(&mut self.connection)
    }

    fn send(&mut self, lines: impl IntoIterator<Item = String>) -> Tally {
        let requests = Requests::of(lines);
        let tally = run(self.connections(), &requests, PIPELINE);
        assert_eq!(tally.errors, 0);
        tally
    }

    fn ask(&self, token_number: usize) -> String {
        let (_, queue, _) = self.tokens[token_number];
        let wait = match self.way {
            Way::Notify => "NOTIFY 0 grants",
            Way::Absent => "KEEP 3600000",
        };
        let token = token(token_number);
        format!("LOCK.ACQUIRE {} {token} 60000000 {wait}", key(queue))
    }

    fn release(&self, token_number: usize) -> String {
        let (_, queue, _) = self.tokens[token_number];
        format!("LOCK.RELEASE {} {}", key(queue), token(token_number))
    }

    /// These tokens take places.
    fn enter(&mut self, tokens: &[usize]) {
        let lines: Vec<_> = tokens.iter().map(|n| self.ask(*n)).collect();
        let tally = self.send(lines);
        let queued = match self.way {
            Way::Notify => tally.yes,
            Way::Absent => tally.no,
        };
        assert_eq!(queued, tokens.len(), "not all of them wait");
        for &n in tokens {
            let (place, queue, waits) = &mut self.tokens[n];
            (*place, *waits) = (*place + 1, true);
            self.queues[*queue].entries.push_back((n, *place));
        }
    }

    /// These tokens give up their places.
    fn leave(&mut self, tokens: &[usize]) {
        let lines: Vec<_> = tokens.iter().map(|n| self.release(*n)).collect();
        assert_eq!(self.send(lines).no, tokens.len());
        for &n in tokens {
            self.tokens[n].2 = false;
        }
    }

    /// The holders of these queues release, and the next ones are granted. Returns the former
    /// holders.
    fn grant(&mut self, queues: &[usize]) -> Vec<usize> {
        let mut former = Vec::new();
        let mut lines = Vec::new();
        for &number in queues {
            let holder = self.queues[number].holder;
            let next = self.next(number);
            lines.push(self.release(holder));
            if self.way == Way::Absent {
                lines.push(self.ask(next));
            }
            self.queues[number].holder = next;
            self.tokens[next].2 = false;
            former.push(holder);
        }
        let sent = lines.len();
        assert_eq!(self.send(lines).yes, sent, "not the next one");
        if self.way == Way::Notify {
            assert_eq!(self.subscriber.receive(former.len()).yes, former.len());
        }
        former
    }

    fn next(&mut self, queue: usize) -> usize {
        loop {
            let entry = self.queues[queue].entries.pop_front();
            let (n, place) = entry.expect("a place");
            if self.tokens[n].0 == place && self.tokens[n].2 {
                return n;
            }
        }
    }

    /// Different tokens that wait, in no order that a cache can predict.
    fn anywhere(&self, seed: usize) -> Vec<usize> {
        let len = self.tokens.len();
        let step = 7919;
        let all = (0..len).map(|n| (seed * 104_729 + n * step) % len);
        all.filter(|n| self.tokens[*n].2).take(BATCH).collect()
    }

    /// The time left of these keys: what the server itself pays for keys at any place of its memory.
    fn look(&mut self, tokens: &[usize]) {
        let key_of = |n: &usize| format!("PTTL {}", key(self.tokens[*n].1));
        let lines: Vec<_> = tokens.iter().map(key_of).collect();
        assert_eq!(self.send(lines).yes, tokens.len());
    }

    /// One round: the cost of a grant, of leaving, of entering, and of a PTTL.
    fn round(&mut self, round: usize, batches: usize, meter: &mut Meter) -> [f64; 4] {
        let mut sums = [0.0; 4];
        for batch in 0..batches {
            let seed = round * batches + batch;
            let queues: Vec<usize> = match self.queues.len() {
                1 => vec![0; BATCH],
                count => (0..BATCH)
                    .map(|n| (seed * 104_729 + n * 7919) % count)
                    .collect(),
            };
            let mut former = Vec::new();
            sums[0] += meter.of(|| former = self.grant(&queues));
            self.enter(&former);
            let some = self.anywhere(seed);
            sums[1] += meter.of(|| self.leave(&some));
            sums[2] += meter.of(|| self.enter(&some));
            let others = self.anywhere(seed + 1);
            sums[3] += meter.of(|| self.look(&others));
        }
        sums.map(|sum| sum / (batches * BATCH) as f64)
    }
}

pub fn measure(with: &Run) {
    let mut report = Report::new("places", "Places without a blocked client", with.quick);
    report.say(
        "The table shows µs of the server's CPU to grant, to give a place up (LOCK.RELEASE) and to enter. There are that many places in one queue, or one \
         in each of as many queues. Keys have 16 bytes, tokens 36. There is one channel for all, and one connection that sends 50 requests at a time. A grant is the RELEASE before it, and its message (NOTIFY) or the request that resumes the \
         place (absent). PTTL asks for random keys that have waiters. It shows what the server itself pays when its memory no longer fits into the caches.",
    );
    let mut rows = Vec::new();
    let counts = &COUNTS[..if with.quick { 2 } else { COUNTS.len() }];
    for &kind in &with.kinds {
        for keys in [Keys::One, Keys::Own] {
            for way in [Way::Notify, Way::Absent] {
                sizes(with, &mut report, (kind, keys, way), counts, &mut rows);
            }
        }
    }
    report.table(
        &[
            "server", "keys", "listener", "places", "grant", "give up", "enter", "PTTL",
        ],
        &rows,
    );
    instructions(with, &mut report);
    report.write();
}

fn sizes(
    with: &Run,
    report: &mut Report,
    (kind, keys, way): (Kind, Keys, Way),
    counts: &[usize],
    rows: &mut Vec<Vec<String>>,
) {
    let shape = format!("{}, {}", keys.name(), way.name());
    let mut smallest: Option<[Vec<f64>; 4]> = None;
    for &count in counts {
        let mut meter = Meter::Cpu(Box::new(Fixture::start(kind, &[])));
        let (mut places, _) = Places::form(&mut meter, count, keys, way);
        let mut costs = [const { Vec::new() }; 4];
        for round in 0..=with.rounds(ROUNDS) {
            let found = places.round(round, BATCHES, &mut meter);
            if round > 0 {
                for (costs, cost) in costs.iter_mut().zip(found) {
                    costs.push(cost);
                }
            }
        }
        let subject = format!("{count} places, {shape}");
        let first = smallest.get_or_insert_with(|| costs.clone());
        for (n, what) in WORK.into_iter().enumerate() {
            let spread = Spread::of(&costs[n]);
            report.figure(kind, &format!("{what}, server CPU µs"), &subject, spread);
            if count > counts[0] {
                let measure = format!("{what} with many places against 1,000, server CPU");
                let growth = Spread::of_ratios(&costs[n], &first[n]);
                report.figure(kind, &measure, &subject, growth);
            }
        }
        let mut row = vec![name(kind).to_string()];
        row.extend([keys.name().into(), way.name().into(), count.to_string()]);
        row.extend(costs.iter().map(|costs| Spread::of(costs).shown(2)));
        println!("{}", row.join(" | "));
        rows.push(row);
    }
}

/// The instructions of the same work, which do not depend on the caches.
fn instructions(with: &Run, report: &mut Report) {
    let kind = Kind::Redis7_0;
    report.say(&format!(
        "### Instructions\n\nThe table shows instructions of the server for the same on {}, as callgrind counts them.",
        name(kind)
    ));
    let mut rows = Vec::new();
    for keys in [Keys::One, Keys::Own] {
        for way in [Way::Notify, Way::Absent] {
            let mut smallest = None;
            for &count in &COUNTS[..if with.quick { 1 } else { COUNTS.len() }] {
                let mut counted = Counted::start_with(kind, &WITHOUT_LIMITS);
                counted.pause();
                let mut meter = Meter::Instructions(Box::new(counted));
                let (mut places, _) = Places::form(&mut meter, count, keys, way);
                if let Meter::Instructions(counted) = &mut meter {
                    counted.resume();
                }
                places.round(0, 1, &mut meter);
                let costs = places.round(1, 2, &mut meter);
                let first = *smallest.get_or_insert(costs);
                let subject = format!("{count} places, {}, {}", keys.name(), way.name());
                let mut row = vec![
                    keys.name().to_string(),
                    way.name().into(),
                    count.to_string(),
                ];
                for (n, what) in WORK.into_iter().enumerate() {
                    let cost = Spread::of(&[costs[n]]);
                    report.figure(kind, &format!("{what}, instructions"), &subject, cost);
                    if count > COUNTS[0] && what != "PTTL" {
                        let goal = format!("{what} with many places against 1,000, instructions");
                        let growth = Spread::of(&[costs[n] / first[n]]);
                        report.goal(kind, &goal, &subject, Bound::AtMost(2.0), growth);
                    }
                    row.push(format!("{:.0}", costs[n]));
                }
                println!("{}", row.join(" | "));
                rows.push(row);
            }
        }
    }
    report.table(
        &[
            "keys", "listener", "places", "grant", "give up", "enter", "PTTL",
        ],
        &rows,
    );
}
