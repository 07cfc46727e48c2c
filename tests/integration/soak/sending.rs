//! The requests of the clients of a soak, as they are sent and recorded.

use std::io::{Error, ErrorKind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::RngExt;
use redis_lock::lock::Mode;

use super::clients::Client;
use super::history::{now_us, Mark, Outcome, Parts, Request, What, GUARDED};
use crate::harness::{Raw, Reply};

/// The longest time that anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client waits for a reply before it disconnects.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Endless,
    Only(Duration),
}

/// How long a request waits and where, and how long its place outlives it.
#[derive(Clone, Copy, Default)]
pub(super) struct Stay {
    pub(super) wait_ms: Option<u64>,
    pub(super) keep_ms: Option<u64>,
    pub(super) by_channel: bool,
}

/// The options that the judge has to know.
#[derive(Clone, Copy, Default)]
struct Extras {
    linger_ms: Option<u64>,
    keep_ms: Option<u64>,
    at_least_ms: Option<u64>,
}

/// A request without a reply yet.
pub(super) struct Pending {
    wire: Raw,
    /// Where the end of its wait comes, and until when at the latest.
    ear: Option<(Raw, Duration)>,
    token: String,
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
            by_channel: false,
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
                let stay = Stay {
                    wait_ms: block,
                    ..Stay::default()
                };
                self.start_acquire(token, &[(key.to_string(), mode)], stay)
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
        stay: Stay,
    ) -> Option<Pending> {
        let ear = match stay.by_channel {
            true => Some(self.open_ear()?),
            false => None,
        };
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
        match (stay.wait_ms, &ear) {
            (Some(ms), None) => words.extend(["BLOCK".into(), ms.to_string()]),
            (Some(ms), Some(ear)) => {
                words.extend(["NOTIFY".into(), ms.to_string(), channel_of(ear)]);
            }
            (None, _) => {}
        }
        if let Some(keep_ms) = stay.keep_ms {
            words.extend(["KEEP".into(), keep_ms.to_string()]);
        }
        // The locks that are left held at the end are bound to nothing. And it is the connection that
        // asked which LINGER binds, not the one that listens.
        let may_linger = self.ttl_ms.is_none() && ear.is_none();
        let linger_ms = match self.rng.random_range(0..100) {
            0..=19 if may_linger => Some(0),
            20..=29 if may_linger => Some(self.rng.random_range(1..40)),
            _ => None,
        };
        if let Some(linger_ms) = linger_ms {
            words.extend(["LINGER".into(), linger_ms.to_string()]);
        }
        let asked = asked.iter();
        let asked: Vec<_> = asked
            .map(|(key, mode)| (key.clone(), What::Acquire(*mode, stay.wait_ms)))
            .collect();
        let extras = Extras {
            linger_ms,
            keep_ms: stay.keep_ms,
            at_least_ms: None,
        };
        let ear = ear.map(|ear| {
            let ms = stay.wait_ms.unwrap_or_default();
            (ear, Duration::from_millis(ms) + MESSAGE_LATE)
        });
        self.start(&words, token, &asked, extras, ear)
    }

    /// The connection that listens, subscribed to its channel.
    fn open_ear(&mut self) -> Option<Raw> {
        if let Some(ear) = self.ear.take() {
            return Some(ear);
        }
        let mut ear = Raw::open(self.fixture.port).ok()?;
        ear.send_together(&[&["SUBSCRIBE", &channel_of(&ear)]])
            .ok()?;
        ear.reply(PATIENCE).ok()?;
        Some(ear)
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
        self.start(&words, token, &[(key.into(), what)], extras, None)
    }

    fn start(
        &mut self,
        words: &[String],
        token: &str,
        asked: &[(String, What)],
        extras: Extras,
        ear: Option<(Raw, Duration)>,
    ) -> Option<Pending> {
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => Raw::open(self.fixture.port).ok()?,
        };
        let connection = ear.as_ref().map_or(wire.id, |(ear, _)| ear.id);
        self.fixture.connections[self.number].store(connection, Ordering::Relaxed);
        let first = first_request_of(self.number) + self.requests.len() as u64;
        let parts = Parts {
            first,
            count: asked.len() as u64,
        };
        let mark = Mark::Asked(first).command();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let asked_us = now_us();
        // If the connection has broken, the reply will show it.
        wire.send_together(&[&mark.each_ref().map(String::as_str), &words])
            .ok();
        // The numbers are reserved, even if another request is recorded in the meantime.
        for (number, (key, what)) in parts.numbers().zip(asked) {
            let request = Request {
                connection,
                by_channel: ear.is_some(),
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
            ear,
            token: token.into(),
            what: asked[0].1,
            parts,
        })
    }

    pub(super) fn finish(&mut self, pending: Pending, patience: Patience) -> Outcome {
        let Pending {
            mut wire,
            ear,
            token,
            what,
            parts,
        } = pending;
        let wait = match patience {
            Patience::Endless => PATIENCE,
            Patience::Only(wait) => wait,
        };
        // The mark's own reply comes first. That to NOTIFY comes at once.
        let own_wait = if ear.is_some() { PATIENCE } else { wait };
        let reply = wire.reply(own_wait).and_then(|_| wire.reply(own_wait));
        let mut ended_us = now_us();
        let outcome = match (reply, patience, ear) {
            (Ok(Reply::Simple(_)), _, Some((ear, longest))) => {
                self.leave();
                self.wire = Some(wire);
                let outcome = self.listen(ear, &token, (wait, longest));
                ended_us = now_us();
                outcome
            }
            (Ok(reply), _, ear) => {
                self.leave();
                self.wire = Some(wire);
                self.ear = ear.map(|(ear, _)| ear);
                outcome(what, reply)
            }
            // The operator has struck at the connection before it was known where the client listens.
            (Err(_), _, Some((ear, _))) => cut(ear),
            (Err(error), Patience::Only(_), None) if is_impatience(&error) => cut(wire),
            (Err(error), _, None) if is_impatience(&error) => Outcome::Silence,
            (Err(_), _, None) => Outcome::Closed,
        };
        if let Outcome::Cut { .. } = outcome {
            ended_us = now_us();
        }
        for number in parts.numbers() {
            let own = usize::try_from(number % REQUESTS_PER_CLIENT).unwrap();
            let request = &mut self.requests[own].1;
            request.ended_us = ended_us;
            request.outcome = outcome.clone();
        }
        outcome
    }

    /// The end of a wait by a channel: a message, or the client vanishes first.
    fn listen(
        &mut self,
        mut ear: Raw,
        token: &str,
        (patience, longest): (Duration, Duration),
    ) -> Outcome {
        let until = Instant::now() + patience.min(longest);
        loop {
            match ear.reply(until.saturating_duration_since(Instant::now())) {
                Ok(message) => {
                    if let Some(outcome) = told(&message, token) {
                        self.ear = Some(ear);
                        return outcome;
                    }
                }
                Err(error) if !is_impatience(&error) => return Outcome::Closed,
                Err(_) if patience < longest => return cut(ear),
                Err(_) => {
                    ear.cut();
                    return Outcome::Silence;
                }
            }
        }
    }
}

/// How late a message may be after the timeout of its request.
const MESSAGE_LATE: Duration = Duration::from_secs(5);

fn channel_of(ear: &Raw) -> String {
    format!("ear:{}", ear.id)
}

/// Whether a reply is just not there yet.
fn is_impatience(error: &Error) -> bool {
    error.kind() == ErrorKind::TimedOut
}

/// The client vanishes.
fn cut(wire: Raw) -> Outcome {
    let since_us = now_us();
    wire.cut();
    Outcome::Cut { since_us }
}

/// What a message says to a token; `None` if it is for an earlier one.
fn told(message: &Reply, token: &str) -> Option<Outcome> {
    let text = std::str::from_utf8(message.items()[2].as_bytes()).unwrap();
    let words: Vec<_> = text.split(' ').collect();
    let [event, fence, _, _, to] = words[..] else {
        panic!("{text}");
    };
    let outcome = match event {
        "granted" => Outcome::Fence(fence.parse().unwrap()),
        "timeout" => Outcome::Null,
        event => Outcome::Error(format!("{} by a message", event.to_uppercase())),
    };
    (to == token).then_some(outcome)
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
