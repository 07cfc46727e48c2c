//! The requests of the clients of a soak, as they are sent and recorded.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt;
use redis_lock::lock::Mode;

use super::clients::Client;
use super::history::{now_us, Mark, Outcome, Parts, Request, What, GUARDED};
use super::wire::{is_impatience, Wire, PATIENCE};
use crate::harness::Reply;

/// How long a client waits for a reply before it disconnects.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Endless,
    Only(Duration),
}

/// How long a request waits, and how long its place outlives it.
type Stay = (Option<u64>, Option<u64>);

/// The options that the judge has to know.
#[derive(Clone, Copy, Default)]
struct Extras {
    linger_ms: Option<u64>,
    keep_ms: Option<u64>,
    at_least_ms: Option<u64>,
}

/// A request without a reply yet.
pub(super) struct Pending {
    wire: Wire,
    what: What,
    parts: Parts,
}

const REQUESTS_PER_CLIENT: u64 = 1 << 32;

/// The number of a client's first request.
pub fn first_request_of(client: usize) -> u64 {
    client as u64 * REQUESTS_PER_CLIENT
}

impl Client<'_> {
    /// Disconnects without a word.
    pub(super) fn leave(&mut self) {
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
            keep_ms: None,
            at_least_ms: None,
            asked_us: since_us,
            ended_us: now_us(),
            outcome: Outcome::Cut { since_us },
        };
        self.requests.push((number, request));
    }

    /// `None` if there is no connection.
    pub(super) fn ask(&mut self, what: What, key: &str, token: &str) -> Option<Outcome> {
        let pending = match what {
            What::Acquire(mode, block) => {
                self.start_acquire(token, &[(key.to_string(), mode)], (block, None))
            }
            _ => self.start_change(what, key, token),
        }?;
        Some(self.finish(pending, Patience::Endless))
    }

    /// Sends a request on a second connection before the first one is answered: two requests with
    /// one token.
    pub(super) fn ask_twice(
        &mut self,
        token: &str,
        asked: &[(String, Mode)],
        stay: Stay,
        patience: Patience,
    ) -> Option<Outcome> {
        let first = self.start_acquire(token, asked, stay)?;
        let Some(second) = self.start_acquire(token, asked, stay) else {
            return Some(self.finish(first, patience));
        };
        self.finish(first, patience);
        Some(self.finish(second, Patience::Endless))
    }

    pub(super) fn start_acquire(
        &mut self,
        token: &str,
        asked: &[(String, Mode)],
        (block, keep_ms): Stay,
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
        if let Some(keep_ms) = keep_ms {
            words.extend(["KEEP".into(), keep_ms.to_string()]);
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
        let extras = Extras {
            linger_ms,
            keep_ms,
            at_least_ms: None,
        };
        self.start(&words, token, &asked, extras)
    }

    fn start_change(&mut self, what: What, key: &str, token: &str) -> Option<Pending> {
        let name = match what {
            What::Release => "LOCK.RELEASE",
            What::Check => "LOCK.CHECK",
            What::Exec => "LOCK.EXEC",
            _ => "LOCK.RENEW",
        };
        let mut words = vec![name.to_string(), key.into(), token.into()];
        let mut extras = Extras::default();
        if what == What::Renew {
            let ttl_ms = self.ttl_ms.unwrap_or_else(|| self.any_ttl_ms());
            words.push(ttl_ms.to_string());
        }
        if what == What::Exec {
            words.extend(["INCR".into(), format!("{GUARDED}{key}")]);
        }
        if what == What::Release && self.ttl_ms.is_none() && self.rng.random_bool(0.1) {
            let at_least_ms = self.rng.random_range(0..30);
            words.extend(["ATLEAST".into(), at_least_ms.to_string()]);
            extras.at_least_ms = Some(at_least_ms);
        }
        self.start(&words, token, &[(key.into(), what)], extras)
    }

    fn start(
        &mut self,
        words: &[String],
        token: &str,
        asked: &[(String, What)],
        extras: Extras,
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
                linger_ms: extras.linger_ms,
                keep_ms: extras.keep_ms,
                at_least_ms: extras.at_least_ms,
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

    pub(super) fn finish(&mut self, pending: Pending, patience: Patience) -> Outcome {
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
}

pub fn outcome(what: What, reply: Reply) -> Outcome {
    match (what, reply) {
        (What::Acquire(..), Reply::Int(fence)) => Outcome::Fence(fence.try_into().unwrap()),
        (What::Acquire(..), Reply::Nil) => Outcome::Null,
        (What::Check, Reply::Int(fence)) => Outcome::Fence(fence.try_into().unwrap()),
        (What::Check, Reply::Nil) => Outcome::Null,
        (What::Release | What::Renew, Reply::Int(done @ (0 | 1))) => Outcome::Done(done == 1),
        // The number of guarded writes until now.
        (What::Exec, Reply::Int(_)) => Outcome::Done(true),
        (What::Exec, Reply::Error(error)) if error.starts_with("NOTHELD ") => Outcome::Done(false),
        (_, Reply::Error(error)) => Outcome::Error(error),
        (_, other) => Outcome::Error(format!("no answer to {what:?}: {other:?}")),
    }
}
