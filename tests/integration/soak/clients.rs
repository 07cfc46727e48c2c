//! The clients of a soak. Each acquires locks, holds them for a moment and releases them, properly
//! or not, and records all requests.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis_lock::lock::Mode;

use super::history::{Outcome, Request, What};
use super::sending::{Patience, Stay};
use crate::harness::Raw;

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
    pub(super) fixture: &'s Fixture,
    pub(super) number: usize,
    pub(super) rng: StdRng,
    pub(super) wire: Option<Raw>,
    /// Where it hears of grants.
    pub(super) ear: Option<Raw>,
    tokens: u64,
    /// The ttl of its holds, if it is not random.
    pub(super) ttl_ms: Option<u64>,
    /// Its requests, in order.
    pub requests: Vec<(u64, Request)>,
}

/// The number of contended locks.
const HOT_LOCKS: usize = 4;

impl<'s> Client<'s> {
    pub fn new(fixture: &'s Fixture, number: usize) -> Self {
        Self {
            fixture,
            number,
            rng: StdRng::seed_from_u64(fixture.seed ^ ((number as u64 + 1) << 32)),
            wire: None,
            ear: None,
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
        let keep_ms = self.any_grace();
        if !self.take(key, token, mode, keep_ms) {
            // Its place stays for its grace, unless it is given up.
            if keep_ms.is_some() && self.rng.random_bool(0.3) {
                self.ask(What::Release, key, token);
            }
            return;
        }
        for _ in 0..self.rng.random_range(0..3) {
            self.think();
            match self.rng.random_range(0..14) {
                // Renewed, acquired again or converted, which may mean to wait.
                0..=3 => drop(self.ask(What::Renew, key, token)),
                4..=5 => drop(self.ask(What::Acquire(mode, None), key, token)),
                6..=9 => self.write_guarded(key, token),
                _ => {
                    let other = self.any_mode();
                    self.take(key, token, other, None);
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
            12..=19 => {
                self.ask(What::Release, key, token);
                self.write_guarded(key, token); // As an owner that is late.
            }
            _ => drop(self.ask(What::Release, key, token)),
        }
    }

    /// Checks the hold, or writes only if it stands.
    fn write_guarded(&mut self, key: &str, token: &str) {
        let what = match self.rng.random_bool(0.7) {
            true => What::Exec,
            false => What::Check,
        };
        self.ask(what, key, token);
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
        let keep_ms = self.any_grace();
        let stay = self.any_stay(keep_ms);
        if !self.insist(token, &asked, stay) {
            // On one of the keys, for the whole place.
            if keep_ms.is_some() && self.rng.random_bool(0.3) {
                self.ask(What::Release, key, token);
            }
            return;
        }
        self.think();
        self.write_guarded(key, token);
        let other = self.fixture.any_key(&mut self.rng);
        if self.rng.random_bool(0.4) && asked.iter().all(|(key, _)| *key != other) {
            let mode = self.reader_or_writer();
            if self.take(&other, token, mode, None) {
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

    /// Tries to get a hold. A client whose connection broke may repeat the request with the same
    /// token.
    fn take(&mut self, key: &str, token: &str, mode: Mode, keep_ms: Option<u64>) -> bool {
        let stay = self.any_stay(keep_ms);
        self.insist(token, &[(key.to_string(), mode)], stay)
    }

    /// With KEEP it waits in slices. Nobody waits for ever by a channel: the server does not notice
    /// that the client has gone before its turn comes.
    fn any_stay(&mut self, keep_ms: Option<u64>) -> Stay {
        let wait_ms = match keep_ms {
            Some(_) => Some(self.rng.random_range(0..30)).filter(|ms| *ms > 0),
            None => self.any_block(),
        };
        let may_notify = wait_ms.is_some_and(|ms| ms > 0);
        Stay {
            wait_ms,
            keep_ms,
            by_channel: may_notify && self.rng.random_bool(0.35),
        }
    }

    fn any_grace(&mut self) -> Option<u64> {
        match self.rng.random_range(0..100) {
            0..=1 => Some(self.rng.random_range(40..200)),
            2..=19 => Some(self.rng.random_range(1..40)),
            _ => None,
        }
    }

    fn any_block(&mut self) -> Option<u64> {
        match self.rng.random_range(0..100) {
            0..=14 => None,
            15..=34 => Some(0),
            35..=59 => Some(self.rng.random_range(1..30)),
            _ => Some(self.rng.random_range(1..600)),
        }
    }

    fn insist(&mut self, token: &str, asked: &[(String, Mode)], mut stay: Stay) -> bool {
        let gives_up = if stay.keep_ms.is_some() { 0.15 } else { 0.4 };
        let attempts = if stay.keep_ms.is_some() { 6 } else { 3 };
        for _ in 0..attempts {
            let vanishes = if stay.by_channel { 20 } else { 10 };
            let patience = match self.rng.random_range(0..100) {
                n if n < vanishes => {
                    Patience::Only(Duration::from_micros(self.rng.random_range(0..30_000)))
                }
                _ => Patience::Endless,
            };
            // A second request by a channel takes the place of the first one, which hears nothing.
            let outcome = if !stay.by_channel && self.rng.random_range(0..100) < 3 {
                self.ask_twice(token, asked, stay, patience)
            } else {
                let pending = self.start_acquire(token, asked, stay);
                pending.map(|pending| self.finish(pending, patience))
            };
            match outcome {
                Some(Outcome::Fence(_)) => return true,
                Some(Outcome::Cut { .. } | Outcome::Closed) | None => {}
                // It has a place, and asks again.
                Some(Outcome::Null) if stay.keep_ms.is_some() => {
                    self.think();
                    if self.rng.random_bool(0.2) {
                        stay.keep_ms = None;
                    }
                }
                Some(_) => return false,
            }
            if self.fixture.over.load(Ordering::Relaxed) || self.rng.random_bool(gives_up) {
                return false;
            }
        }
        false
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

    pub(super) fn any_ttl_ms(&mut self) -> u64 {
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

/// The result of an observer's or the operator's connection.
pub fn must<T>(result: io::Result<T>) -> T {
    result.expect("a connection that nobody strikes at")
}
