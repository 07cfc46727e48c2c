//! The time from a release to the reply to the next waiter, on an otherwise idle server.

use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{name, Fixture};
use crate::harness::packed;
use crate::load::{token, Connection, Requests};
use crate::report::{Bound, Report};
use crate::stats::{shown_us, Latency, Spread};
use crate::Run;

const WAITERS: [usize; 4] = [1, 16, 256, 1000];
const ROUNDS: usize = 5;
/// The number of hand-offs in each round: 100,000 in all, so that a thousand lie above the p99.
const HAND_OFFS: usize = 20_000;
/// Before the first round, so that the server's tables and caches are as they stay.
const WARM_UP: usize = 400;
/// The pause between two hand-offs, so that the server is idle when the next one comes.
const PAUSE: Duration = Duration::from_micros(100);

/// Clients of which one holds the lock and the others wait, in this order.
struct Line {
    takes: Vec<Vec<u8>>,
    gives: Vec<Vec<u8>>,
    connections: Vec<Connection>,
    /// The index of the holder.
    at: usize,
}

fn bytes(line: String) -> Vec<u8> {
    Requests::of([line]).into_bytes()
}

impl Line {
    fn locks(fixture: &mut Fixture, waiters: usize) -> Self {
        let take = |n| bytes(format!("LOCK.ACQUIRE lock {} 600000 BLOCK 0", token(n)));
        let give = |n| bytes(format!("LOCK.RELEASE lock {}", token(n)));
        Self::form(fixture, waiters, take, give)
    }

    fn list(fixture: &mut Fixture, waiters: usize) -> Self {
        fixture.control.call("LPUSH list x");
        let take = |_| bytes("BLPOP list 0".into());
        let give = |_| bytes("LPUSH list x".into());
        Self::form(fixture, waiters, take, give)
    }

    fn form(
        fixture: &mut Fixture,
        waiters: usize,
        take: impl Fn(usize) -> Vec<u8>,
        give: impl Fn(usize) -> Vec<u8>,
    ) -> Self {
        let count = waiters + 1;
        let mut line = Self {
            takes: (0..count).map(take).collect(),
            gives: (0..count).map(give).collect(),
            connections: fixture.connections(count),
            at: 0,
        };
        for n in 0..count {
            line.connections[n].send(&line.takes[n]);
            if n == 0 {
                line.connections[n].receive(1);
            } else {
                // Each client is in the queue before the next one comes.
                line.connections[0].send(&packed(&["PING"]));
                line.connections[0].receive(1);
            }
        }
        line
    }

    fn hand_offs(&mut self, count: usize) -> Latency {
        let mut latency = Latency::new();
        (0..count).for_each(|_| self.hand_off(&mut latency));
        latency
    }

    /// The holder hands the lock to the next client and joins the end of the queue.
    fn hand_off(&mut self, latency: &mut Latency) {
        let (at, next) = (self.at, (self.at + 1) % self.connections.len());
        let begin = Instant::now();
        self.connections[at].send(&self.gives[at]);
        let granted = self.connections[next].receive(1);
        latency.record(begin.elapsed());
        assert_eq!(granted.yes, 1, "not the next in line");
        assert_eq!(self.connections[at].receive(1).errors, 0);
        self.connections[at].send(&self.takes[at]);
        self.at = next;
        // When this is answered, the command before it has been executed.
        self.connections[next].send(&packed(&["PING"]));
        self.connections[next].receive(1);
        thread::sleep(PAUSE);
    }
}

pub fn measure(with: &Run) {
    let mut report = Report::new(
        "handoff",
        "From a release to the next one's reply",
        with.quick,
    );
    report.say(
        "The clients measure the time from before they send the release until the next waiter has its reply. The server is idle before. \
         Beside it is the same with LPUSH and BLPOP, in turns, on the same server.",
    );
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let mut first: Option<Vec<f64>> = None;
        for waiters in WAITERS {
            let mut fixture = Fixture::start(kind, &[]);
            let mut lines = [
                Line::locks(&mut fixture, waiters),
                Line::list(&mut fixture, waiters),
            ];
            fixture.wait_for_blocked(2 * waiters);
            // By row and percentile, a value per round.
            let mut found = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
            let mut longest = [0.0f64; 2];
            for line in &mut lines {
                line.hand_offs(WARM_UP);
            }
            for _ in 0..with.rounds(ROUNDS) {
                for (n, line) in lines.iter_mut().enumerate() {
                    let latency = line.hand_offs(with.size(HAND_OFFS));
                    found[n][0].push(latency.at(0.5));
                    found[n][1].push(latency.at(0.99));
                    longest[n] = longest[n].max(latency.at(1.0));
                }
            }
            let [ours, theirs] = &found;
            let ratios = [0, 1].map(|at| Spread::of_ratios(&ours[at], &theirs[at]));
            let mut row = vec![name(kind).to_string(), waiters.to_string()];
            for (found, longest) in found.iter().zip(longest) {
                row.extend(
                    found
                        .iter()
                        .map(|values| shown_us(Spread::of(values).median)),
                );
                row.push(shown_us(longest));
            }
            row.extend(ratios.iter().map(|ratio| ratio.shown(2)));
            println!("{}", row.join(" | "));
            rows.push(row);
            let subject = format!("{waiters} waiters");
            for (n, (share, limit)) in [("p50", 1.10), ("p99", 1.15)].into_iter().enumerate() {
                let goal = format!("release to the next grant against BLPOP's wake-up, {share}");
                report.goal(kind, &goal, &subject, Bound::AtMost(limit), ratios[n]);
                report.figure(
                    kind,
                    &format!("grant {share} µs"),
                    &subject,
                    Spread::of(&ours[n]),
                );
                report.figure(
                    kind,
                    &format!("BLPOP {share} µs"),
                    &subject,
                    Spread::of(&theirs[n]),
                );
            }
            match &first {
                None => first = Some(ours[0].clone()),
                Some(first) => {
                    let growth = Spread::of_ratios(&ours[0], first);
                    let measure = "release to the next grant against 1 waiter, p50";
                    report.figure(kind, measure, &subject, growth);
                }
            }
        }
    }
    report.table(
        &[
            "server",
            "waiters",
            "grant p50",
            "p99",
            "max",
            "BLPOP p50",
            "p99",
            "max",
            "p50, ratio",
            "p99, ratio",
        ],
        &rows,
    );
    report.picture("handoff", "From the release to the next one's reply, p50");
    report.write();
}
