//! The clients of a soak. Each acquires locks, holds them for a moment and releases them, properly
//! or not, and records all requests.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis_lock::lock::Mode;

use super::history::{now_us, Mark, Outcome, Parts, Request, What};
use super::wire::{is_impatience, Wire, PATIENCE};
use crate::harness::Reply;

/// The state that all threads of a run share.
pub struct Fixture {
    pub port: u16,
    pub keys: Vec<String>,
    pub seed: u64,
    /// Set when the time is over.
    pub over: AtomicBool,
    /// The connection of each client, for the operator to kill.
    pub connections: Vec<AtomicI64>,
}

impl Fixture {
    /// One of the few contended keys, or one of the quiet ones: a waiter of those is woken only by
    /// a timer.
    pub fn any_key(&self, rng: &mut StdRng) -> String {
        let key = match rng.random_bool(0.6) {
            true => rng.random_range(0..HOT_LOCKS),
            false => rng.random_range(HOT_LOCKS..self.keys.len()),
        };
        self.keys[key].clone()
    }
}

pub struct Client<'s> {
    fixture: &'s Fixture,
    number: usize,
    rng: StdRng,
    wire: Option<Wire>,
    tokens: u64,
    /// The ttl of its holds, if it is not random.
    ttl_ms: Option<u64>,
    /// Its requests, in order.
    pub requests: Vec<(u64, Request)>,
}

/// How long a client waits for a reply before it disconnects.
#[derive(Clone, Copy)]
enum Patience {
    Endless,
    Only(Duration),
}

/// A request without a reply yet.
struct Pending {
    wire: Wire,
    what: What,
    parts: Parts,
}

/// The number of contended locks.
const HOT_LOCKS: usize = 4;

const REQUESTS_PER_CLIENT: u64 = 1 << 32;

/// The number of a client's first request.
pub fn first_request_of(client: usize) -> u64 {
    client as u64 * REQUESTS_PER_CLIENT
}

impl<'s> Client<'s> {
    pub fn new(fixture: &'s Fixture, number: usize) -> Self {
        Self {
            fixture,
            number,
            rng: StdRng::seed_from_u64(fixture.seed ^ ((number as u64 + 1) << 32)),
            wire: None,
            tokens: 0,
            ttl_ms: None,
            requests: Vec::new(),
        }
    }

    /// Acquires locks until the time is over.
    pub fn run(mut self) -> Vec<(u64, Request)> {
        while !self.fixture.over.load(Ordering::Relaxed) {
            let key = self.fixture.any_key(&mut self.rng);
            self.tokens += 1;
            let token = format!("{}.{}", self.number, self.tokens);
            match self.rng.random_bool(0.15) {
                true => self.take_several_and_give_up(&key, &token),
                false => self.take_and_give_up(&key, &token),
            }
        }
        self.leave();
        self.requests
    }

    /// Leaves every lock held for long, each in a different way.
    pub fn leave_locks_held(mut self) -> Vec<(u64, Request)> {
        self.ttl_ms = Some(60_000);
        let [alone, together, downgraded, renewed, permits, ..] = &self.fixture.keys[..] else {
            panic!("five locks at least");
        };
        let take = |mode| What::Acquire(mode, None);
        let permit = |limit| take(Mode::of_limit(limit).unwrap());
        for (what, key, token) in [
            (take(Mode::Exclusive), alone, "a"),
            (take(Mode::Shared), together, "b"),
            (take(Mode::Shared), together, "c"),
            (take(Mode::Shared), together, "d"),
            (What::Release, together, "c"),
            (take(Mode::Exclusive), downgraded, "e"),
            (take(Mode::Shared), downgraded, "e"),
            (take(Mode::Shared), downgraded, "f"),
            (take(Mode::Exclusive), renewed, "g"),
            (What::Renew, renewed, "g"),
            (permit(3), permits, "h"),
            (permit(5), permits, "i"),
            (permit(2), permits, "h"),
        ] {
            let outcome = self.ask(what, key, token);
            let done = matches!(outcome, Some(Outcome::Fence(_) | Outcome::Done(true)));
            assert!(done, "{what:?} {key} {token}: {outcome:?}");
        }
        self.requests
    }

    fn take_and_give_up(&mut self, key: &str, token: &str) {
        let mode = self.any_mode();
        if !self.take(key, token, mode) {
            return;
        }
        for _ in 0..self.rng.random_range(0..3) {
            self.think();
            match self.rng.random_range(0..10) {
                // Renewed, acquired again or converted, which may mean to wait.
                0..=3 => drop(self.ask(What::Renew, key, token)),
                4..=5 => drop(self.ask(What::Acquire(mode, None), key, token)),
                _ => {
                    let other = self.any_mode();
                    self.take(key, token, other);
                }
            }
        }
        self.think();
        match self.rng.random_range(0..100) {
            0..=1 => {} // Forgotten: it expires.
            // Disconnected while holding the lock.
            2..=6 => self.leave(),
            7..=11 => {
                self.ask(What::Release, key, token);
                self.ask(What::Release, key, token);
            }
            _ => drop(self.ask(What::Release, key, token)),
        }
    }

    /// Takes two or three locks at once, and then perhaps one more, which can close a cycle of
    /// waits.
    fn take_several_and_give_up(&mut self, key: &str, token: &str) {
        let mut keys = vec![key.to_string()];
        let count = self.rng.random_range(2..4);
        while keys.len() < count {
            let other = self.fixture.any_key(&mut self.rng);
            if !keys.contains(&other) {
                keys.push(other);
            }
        }
        let asked: Vec<_> = keys
            .into_iter()
            .map(|key| (key, self.reader_or_writer()))
            .collect();
        let block = self.any_block();
        if !self.insist(token, &asked, block) {
            return;
        }
        self.think();
        let other = self.fixture.any_key(&mut self.rng);
        if self.rng.random_bool(0.4) && asked.iter().all(|(key, _)| *key != other) {
            let mode = self.reader_or_writer();
            if self.take(&other, token, mode) {
                self.think();
                self.ask(What::Release, &other, token);
            }
        }
        if self.rng.random_range(0..100) < 6 {
            return self.leave();
        }
        for (key, _) in &asked {
            if self.rng.random_bool(0.2) {
                self.ask(What::Renew, key, token);
            }
            self.think();
            self.ask(What::Release, key, token);
        }
    }

    /// Disconnects without a word.
    fn leave(&mut self) {
        let Some(wire) = self.wire.take() else {
            return;
        };
        let number = first_request_of(self.number) + self.requests.len() as u64;
        let connection = wire.id;
        let since_us = now_us();
        wire.cut();
        let request = Request {
            connection,
            what: What::Leave,
            parts: Parts::one(number),
            key: String::new(),
            token: String::new(),
            linger_ms: None,
            asked_us: since_us,
            ended_us: now_us(),
            outcome: Outcome::Cut { since_us },
        };
        self.requests.push((number, request));
    }

    /// Tries to get a hold. A client whose connection broke may repeat the request with the same
    /// token.
    fn take(&mut self, key: &str, token: &str, mode: Mode) -> bool {
        let block = self.any_block();
        self.insist(token, &[(key.to_string(), mode)], block)
    }

    fn any_block(&mut self) -> Option<u64> {
        match self.rng.random_range(0..100) {
            0..=14 => None,
            15..=34 => Some(0),
            35..=59 => Some(self.rng.random_range(1..30)),
            _ => Some(self.rng.random_range(1..600)),
        }
    }

    fn insist(&mut self, token: &str, asked: &[(String, Mode)], block: Option<u64>) -> bool {
        for _ in 0..3 {
            let patience = match self.rng.random_range(0..100) {
                0..=9 => Patience::Only(Duration::from_micros(self.rng.random_range(0..30_000))),
                _ => Patience::Endless,
            };
            let outcome = if self.rng.random_range(0..100) < 3 {
                self.ask_twice(token, asked, block, patience)
            } else {
                let pending = self.start_acquire(token, asked, block);
                pending.map(|pending| self.finish(pending, patience))
            };
            match outcome {
                Some(Outcome::Fence(_)) => return true,
                Some(Outcome::Cut { .. } | Outcome::Closed) | None => {}
                Some(_) => return false,
            }
            if self.fixture.over.load(Ordering::Relaxed) || self.rng.random_bool(0.4) {
                return false;
            }
        }
        false
    }

    /// `None` if there is no connection.
    fn ask(&mut self, what: What, key: &str, token: &str) -> Option<Outcome> {
        let pending = match what {
            What::Acquire(mode, block) => {
                self.start_acquire(token, &[(key.to_string(), mode)], block)
            }
            _ => self.start_change(what, key, token),
        }?;
        Some(self.finish(pending, Patience::Endless))
    }

    /// Sends a request on a second connection before the first one is answered: two requests with
    /// one token.
    fn ask_twice(
        &mut self,
        token: &str,
        asked: &[(String, Mode)],
        block: Option<u64>,
        patience: Patience,
    ) -> Option<Outcome> {
        let first = self.start_acquire(token, asked, block)?;
        let Some(second) = self.start_acquire(token, asked, block) else {
            return Some(self.finish(first, patience));
        };
        self.finish(first, patience);
        Some(self.finish(second, Patience::Endless))
    }

    fn start_acquire(
        &mut self,
        token: &str,
        asked: &[(String, Mode)],
        block: Option<u64>,
    ) -> Option<Pending> {
        let ttl_ms = self.ttl_ms.unwrap_or_else(|| self.any_ttl_ms());
        let ttl = ttl_ms.to_string();
        let mut words = Vec::new();
        match asked {
            [(key, mode)] => {
                let name = match mode {
                    Mode::Shared => "RWLOCK.RLOCK",
                    Mode::Exclusive if self.rng.random_bool(0.5) => "RWLOCK.WLOCK",
                    Mode::Exclusive | Mode::Counted(_) => "LOCK.ACQUIRE",
                };
                words.extend([name.into(), key.clone(), token.into(), ttl]);
                if let Mode::Counted(limit) = mode {
                    words.extend(["LIMIT".into(), limit.get().to_string()]);
                }
            }
            several => {
                words.extend(["LOCK.MACQUIRE".into(), several.len().to_string()]);
                words.extend(several.iter().map(|(key, _)| key.clone()));
                words.extend([token.into(), ttl, "MODES".into()]);
                words.extend(several.iter().map(|(_, mode)| mode.name().to_uppercase()));
            }
        }
        if let Some(timeout_ms) = block {
            words.extend(["BLOCK".into(), timeout_ms.to_string()]);
        }
        // The locks that are left held at the end are bound to nothing.
        let linger_ms = match self.rng.random_range(0..100) {
            0..=19 if self.ttl_ms.is_none() => Some(0),
            20..=29 if self.ttl_ms.is_none() => Some(self.rng.random_range(1..40)),
            _ => None,
        };
        if let Some(linger_ms) = linger_ms {
            words.extend(["LINGER".into(), linger_ms.to_string()]);
        }
        let asked = asked.iter();
        let asked: Vec<_> = asked
            .map(|(key, mode)| (key.clone(), What::Acquire(*mode, block)))
            .collect();
        self.start(&words, token, &asked, linger_ms)
    }

    fn start_change(&mut self, what: What, key: &str, token: &str) -> Option<Pending> {
        let mut words = match what {
            What::Release => vec!["LOCK.RELEASE".to_string(), key.into(), token.into()],
            _ => vec!["LOCK.RENEW".to_string(), key.into(), token.into()],
        };
        if what == What::Renew {
            let ttl_ms = self.ttl_ms.unwrap_or_else(|| self.any_ttl_ms());
            words.push(ttl_ms.to_string());
        }
        self.start(&words, token, &[(key.into(), what)], None)
    }

    fn start(
        &mut self,
        words: &[String],
        token: &str,
        asked: &[(String, What)],
        linger_ms: Option<u64>,
    ) -> Option<Pending> {
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => Wire::open(self.fixture.port).ok()?,
        };
        self.fixture.connections[self.number].store(wire.id, Ordering::Relaxed);
        let first = first_request_of(self.number) + self.requests.len() as u64;
        let parts = Parts {
            first,
            count: asked.len() as u64,
        };
        let mark = Mark::Asked(first).command();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let asked_us = now_us();
        // If the connection has broken, the reply will show it.
        wire.send(&[&mark.each_ref().map(String::as_str), &words])
            .ok();
        // The numbers are reserved, even if another request is recorded in the meantime.
        for (number, (key, what)) in parts.numbers().zip(asked) {
            let request = Request {
                connection: wire.id,
                what: *what,
                parts,
                key: key.clone(),
                token: token.into(),
                linger_ms,
                asked_us,
                ended_us: asked_us,
                outcome: Outcome::Silence,
            };
            self.requests.push((number, request));
        }
        Some(Pending {
            wire,
            what: asked[0].1,
            parts,
        })
    }

    fn finish(&mut self, pending: Pending, patience: Patience) -> Outcome {
        let Pending {
            mut wire,
            what,
            parts,
        } = pending;
        let wait = match patience {
            Patience::Endless => PATIENCE,
            Patience::Only(wait) => wait,
        };
        // The mark's own reply comes first.
        let reply = wire.reply(wait).and_then(|_| wire.reply(wait));
        let mut ended_us = now_us();
        let outcome = match (reply, patience) {
            (Ok(reply), _) => {
                self.leave();
                self.wire = Some(wire);
                outcome(what, reply)
            }
            (Err(error), Patience::Only(_)) if is_impatience(&error) => {
                let since_us = ended_us;
                wire.cut();
                ended_us = now_us();
                Outcome::Cut { since_us }
            }
            (Err(error), _) if is_impatience(&error) => Outcome::Silence,
            (Err(_), _) => Outcome::Closed,
        };
        for number in parts.numbers() {
            let own = usize::try_from(number % REQUESTS_PER_CLIENT).unwrap();
            let request = &mut self.requests[own].1;
            request.ended_us = ended_us;
            request.outcome = outcome.clone();
        }
        outcome
    }

    fn any_mode(&mut self) -> Mode {
        match self.rng.random_range(0..100) {
            0..65 => self.reader_or_writer(),
            // LIMIT 1 is exclusive.
            _ => Mode::of_limit(self.rng.random_range(1..5)).unwrap(),
        }
    }

    fn reader_or_writer(&mut self) -> Mode {
        if self.rng.random_bool(0.5) {
            Mode::Exclusive
        } else {
            Mode::Shared
        }
    }

    fn any_ttl_ms(&mut self) -> u64 {
        let range = match self.rng.random_range(0..10) {
            0 => 1..20,
            1..=7 => 20..60,
            _ => 60..300,
        };
        self.rng.random_range(range)
    }

    /// Works with the lock held for a moment.
    fn think(&mut self) {
        let us = match self.rng.random_range(0..12) {
            0 => self.rng.random_range(0..20_000),
            _ => self.rng.random_range(0..1_500),
        };
        if us > 300 {
            thread::sleep(Duration::from_micros(us));
        }
    }
}

pub fn outcome(what: What, reply: Reply) -> Outcome {
    match (what, reply) {
        (What::Acquire(..), Reply::Int(fence)) => Outcome::Fence(fence.try_into().unwrap()),
        (What::Acquire(..), Reply::Nil) => Outcome::Null,
        (What::Release | What::Renew, Reply::Int(done @ (0 | 1))) => Outcome::Done(done == 1),
        (_, Reply::Error(error)) => Outcome::Error(error),
        (_, other) => Outcome::Error(format!("no answer to {what:?}: {other:?}")),
    }
}

/// The result of an observer's or the operator's connection.
pub fn must<T>(result: io::Result<T>) -> T {
    result.expect("a connection that nobody strikes at")
}
