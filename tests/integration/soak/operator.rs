//! The threads besides the clients: an operator who disturbs at random, and an observer who reads
//! the locks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::clients::{must, Fixture};
use super::history::{now_us, Holder, Mark, Outcome, Parts, Pause, Request, Sample, Shown, What};
use super::sending::{first_request_of, outcome, PATIENCE};
use crate::harness::{mode_named, Info, Raw, Reply};

/// Disturbs clients, locks and the server.
pub struct Operator<'s> {
    fixture: &'s Fixture,
    pub wire: Raw,
    rng: StdRng,
    /// When it paused the clients.
    pub pauses: Vec<Pause>,
    /// Its releases on behalf of others.
    pub requests: Vec<(u64, Request)>,
}

impl<'s> Operator<'s> {
    pub fn new(fixture: &'s Fixture) -> Self {
        Self {
            fixture,
            wire: must(Raw::open(fixture.port)),
            rng: StdRng::seed_from_u64(fixture.seed),
            pauses: Vec::new(),
            requests: Vec::new(),
        }
    }

    pub fn run(mut self) -> Self {
        while !self.fixture.over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(self.rng.random_range(500..15_000)));
            if self.rng.random_bool(0.15) {
                self.hand_on_to_the_dead();
            } else {
                self.strike();
            }
        }
        self
    }

    fn strike(&mut self) {
        let (key, other) = (self.any_key(), self.any_key());
        let ms: u64 = self.rng.random_range(1..40);
        let line = match self.rng.random_range(0..100) {
            0..=29 => {
                let victim = self.any_victim();
                let strike = self.any_strike(victim);
                self.send(&[strike]);
                return;
            }
            30..=39 => format!("DEBUG SLEEP 0.0{:02}", ms / 2),
            40..=54 => format!("DEL {key}"),
            55..=59 => format!("UNLINK {key}"),
            60..=74 => format!("PEXPIREAT {key} {}", now_us() / 1_000 + ms),
            75..=79 => format!("PEXPIREAT {key} {}", now_us() / 1_000 + 100_000),
            80..=84 => format!("PERSIST {key}"),
            85..=89 => format!("RENAME {key} away"),
            90..=91 if key != other => format!("RENAME {key} {other}"),
            92..=95 => format!("CLIENT PAUSE {ms} ALL"),
            _ => format!("CLIENT PAUSE {ms} WRITE"),
        };
        let from_us = now_us();
        self.send(&[(Mark::Operated, line.clone())]);
        if line.starts_with("CLIENT PAUSE") {
            let until_us = now_us() + ms * 1_000;
            self.pauses.push(Pause { from_us, until_us });
        }
    }

    /// Releases a lock for its holder, and kills the client that is granted before delivery.
    fn hand_on_to_the_dead(&mut self) {
        let key = self.any_key();
        let shown = self.look_at(&key);
        let (Some(holder), Some((head, _))) = (shown.holders.first(), shown.waiters.first()) else {
            return;
        };
        let victim = self.connection_of(head);
        let number = first_request_of(self.fixture.connections.len()) + self.requests.len() as u64;
        let mut request = Request {
            connection: self.wire.id,
            by_channel: false,
            what: What::Release,
            parts: Parts::one(number),
            key,
            token: holder.token.clone(),
            linger_ms: None,
            keep_ms: None,
            at_least_ms: None,
            asked_us: now_us(),
            ended_us: 0,
            outcome: Outcome::Silence,
        };
        let release = format!("LOCK.RELEASE {} {}", request.key, request.token);
        let strike = self.any_strike(victim);
        let replies = self.send(&[(Mark::Asked(number), release), strike]);
        request.ended_us = now_us();
        request.outcome = outcome(What::Release, replies[0].clone());
        self.requests.push((number, request));
    }

    /// The connection of any client, or of one with waiters behind it.
    fn any_victim(&mut self) -> i64 {
        if self.rng.random_bool(0.7) {
            let key = self.any_key();
            if let Some((head, _)) = self.look_at(&key).waiters.first() {
                return self.connection_of(head);
            }
        }
        let client = self.rng.random_range(0..self.fixture.connections.len());
        self.connection(client)
    }

    /// The ways to end a client's connection or its wait.
    fn any_strike(&mut self, victim: i64) -> (Mark, String) {
        match victim {
            // Not connected yet.
            0 => (Mark::Operated, "PING".into()),
            _ if self.rng.random_bool(0.66) => {
                (Mark::Killed(victim), format!("CLIENT KILL ID {victim}"))
            }
            _ => (
                Mark::Unblocked(victim),
                format!("CLIENT UNBLOCK {victim} ERROR"),
            ),
        }
    }

    /// Sends commands, each after its mark, in one write. Returns their replies.
    fn send(&mut self, commands: &[(Mark, String)]) -> Vec<Reply> {
        let marks: Vec<_> = commands.iter().map(|(mark, _)| mark.command()).collect();
        let mut words: Vec<Vec<&str>> = Vec::new();
        for (mark, (_, line)) in marks.iter().zip(commands) {
            words.push(mark.iter().map(String::as_str).collect());
            words.push(line.split(' ').collect());
        }
        let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
        must(self.wire.send_together(&words));
        let replies = words.iter().map(|_| must(self.wire.reply(PATIENCE)));
        replies
            .collect::<Vec<_>>()
            .into_iter()
            .skip(1)
            .step_by(2)
            .collect()
    }

    fn any_key(&mut self) -> String {
        self.fixture.any_key(&mut self.rng)
    }

    fn look_at(&mut self, key: &str) -> Shown {
        must(self.wire.send_together(&[&["LOCK.INFO", key]]));
        shown(&must(self.wire.reply(PATIENCE)))
    }

    /// The connection of the client that created a token.
    fn connection_of(&self, token: &str) -> i64 {
        let client = token.split('.').next().and_then(|n| n.parse().ok());
        self.connection(client.expect("the number of a client"))
    }

    fn connection(&self, client: usize) -> i64 {
        self.fixture.connections[client].load(Ordering::Relaxed)
    }
}

/// Samples all keys at one instant of the server, repeatedly.
pub struct Observer<'s> {
    fixture: &'s Fixture,
    wire: Raw,
    pub samples: BTreeMap<u64, Sample>,
}

impl<'s> Observer<'s> {
    pub fn new(fixture: &'s Fixture) -> Self {
        Self {
            fixture,
            wire: must(Raw::open(fixture.port)),
            samples: BTreeMap::new(),
        }
    }

    pub fn run(&mut self) {
        while !self.fixture.over.load(Ordering::Relaxed) {
            self.look();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// One sample. Returns whether all keys were free.
    pub fn look(&mut self) -> bool {
        let number = self.samples.len() as u64;
        let mark = Mark::Sampled(number).command();
        let mark = mark.each_ref().map(String::as_str);
        let looks: Vec<_> = self
            .fixture
            .keys
            .iter()
            .map(|key| ["LOCK.INFO", key])
            .collect();
        let mut commands: Vec<&[&str]> = vec![&["MULTI"], &mark, &["TIME"]];
        commands.extend(looks.iter().map(|look| &look[..]));
        commands.push(&["EXEC"]);
        let asked_us = now_us();
        must(self.wire.send_together(&commands));
        for _ in 1..commands.len() {
            must(self.wire.reply(PATIENCE)); // OK, QUEUED …
        }
        let replies = must(self.wire.reply(PATIENCE));
        let ended_us = now_us();
        let [_, time, infos @ ..] = replies.items() else {
            panic!("{replies:?}");
        };
        let keys = self.fixture.keys.iter().cloned();
        let shown: BTreeMap<_, _> = keys.zip(infos.iter().map(shown)).collect();
        let free = shown.values().all(|shown| *shown == Shown::default());
        let sample = Sample {
            asked_us,
            server_us: number_in(&time.items()[0]) * 1_000_000 + number_in(&time.items()[1]),
            ended_us,
            shown,
        };
        self.samples.insert(number, sample);
        free
    }
}

fn shown(info: &Reply) -> Shown {
    let Info {
        mode,
        holders,
        waiters,
    } = Info::of(info);
    let absent = waiters.iter().filter(|waiter| waiter.is_absent());
    let absent = absent.map(|waiter| waiter.token.clone()).collect();
    let holders = holders.into_iter().map(|holder| Holder {
        token: holder.token,
        fence: holder.fence.try_into().unwrap(),
        ttl_ms: holder.ttl_ms.try_into().unwrap(),
    });
    let waiters = waiters.into_iter().map(|waiter| {
        let mode = mode_named(&waiter.mode).expect("a waiter's mode");
        (waiter.token, mode)
    });
    Shown {
        mode: mode_named(&mode),
        holders: holders.collect(),
        waiters: waiters.collect(),
        absent,
    }
}

fn number_in(reply: &Reply) -> u64 {
    let text = std::str::from_utf8(reply.as_bytes()).unwrap();
    text.parse().unwrap()
}
