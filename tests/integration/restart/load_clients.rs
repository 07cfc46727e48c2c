//! The clients of a server that is killed. Each continues with its remaining holds after the
//! restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis_lock::lock::Mode;

use super::journal::{Answer, Holds, Order, Part, Request, Step, What};
use crate::harness::workload::{script, words};
use crate::harness::{now_us, Client, Reply};

pub const CLIENTS: usize = 8;
pub const KEYS: usize = 8;

/// Clients that do little, with locks of their own, so that some holds stay unchanged from a
/// rewrite to the end of a life.
const CALM_CLIENTS: usize = 2;
const CALM_KEYS: usize = 2;

/// The most holds of a client, before it releases one.
const ENOUGH: usize = 3;

pub struct Player {
    number: usize,
    rng: StdRng,
    tokens: usize,
    /// According to the replies.
    holds: Holds,
    /// The hold that it released last: nobody may hold it again.
    given_up: Option<(String, String)>,
    part: Part,
}

pub fn key(n: usize) -> String {
    format!("lock:{n}")
}

/// The keys that a token was made for, if it asks for several at once. They are written in it.
pub fn several_of(token: &str) -> Option<Vec<String>> {
    let (_, keys) = token.split_once('@')?;
    let numbers = keys.split('+').map(|n| n.parse().map(key));
    numbers.collect::<Result<_, _>>().ok()
}

/// The client that a token belongs to.
pub fn client_of(token: &str) -> Option<usize> {
    let (number, _) = token.strip_prefix('c')?.split_once('.')?;
    number.parse().ok().filter(|number| *number < CLIENTS)
}

impl Player {
    pub fn new(number: usize, seed: u64) -> Self {
        Self {
            number,
            rng: StdRng::seed_from_u64(seed ^ (number as u64 + 1) << 32),
            tokens: 0,
            holds: Holds::new(),
            given_up: None,
            part: Part::default(),
        }
    }

    /// Begins its part in a life with its holds, as the server reports them.
    pub fn begin(&mut self, holds: Holds) {
        self.part.base = holds.clone();
        self.holds = holds;
    }

    pub fn end(&mut self) -> Part {
        std::mem::take(&mut self.part)
    }

    /// The request to repeat in the next life, with the same token: an acquire without a reply. If
    /// it was for several keys, the token must hold all of them or none.
    pub fn asks_again(part: &Part) -> Option<Order> {
        let last = part.requests.last().filter(|last| last.answers.is_none())?;
        let again = |step: &Step| {
            let What::Acquire(mode, _) = step.what else {
                return None;
            };
            let what = What::Acquire(mode, None);
            Some(Step {
                what,
                ..step.clone()
            })
        };
        let steps = last.steps.iter().map(again);
        Some(match last.is_several {
            true => Order {
                steps: steps.collect::<Option<_>>()?,
                is_several: true,
            },
            false => Order::of(vec![steps.flatten().next()?]),
        })
    }

    /// Sends one request after the other until the connection breaks.
    pub fn play(&mut self, client: &mut Client, first: Option<Order>, over: &AtomicBool) {
        let mut next = first;
        while !over.load(Ordering::Relaxed) {
            let rests = self.is_calm() && self.holds.len() >= ENOUGH && self.rng.random_bool(0.95);
            let order = next.take().or_else(|| (!rests).then(|| self.any_order()));
            if order.is_some_and(|order| !self.ask(client, order)) {
                return;
            }
            let pause_us = match self.rng.random_range(0..8) {
                _ if rests => self.rng.random_range(0..60_000),
                0 => self.rng.random_range(0..3_000),
                _ => continue,
            };
            thread::sleep(Duration::from_micros(pause_us));
        }
    }

    /// False if the connection has broken.
    fn ask(&mut self, client: &mut Client, order: Order) -> bool {
        let lines = order.lines();
        let Order { steps, is_several } = order;
        let is_script = self.rng.random_bool(0.3);
        let commands = match &lines[..] {
            [line] if !is_script => vec![words(line)],
            _ if is_script => {
                let lines: Vec<_> = lines.iter().map(String::as_str).collect();
                vec![script(&lines)]
            }
            _ => {
                let all = ["MULTI"]
                    .into_iter()
                    .chain(lines.iter().map(String::as_str));
                all.chain(["EXEC"]).map(words).collect()
            }
        };
        let asked_us = now_us();
        let replies = client.try_pipeline(&commands);
        let ended_us = now_us();
        let answers = replies.ok().map(|mut replies| {
            let last = replies.pop().expect("a reply");
            let mut replies = match last {
                Reply::Array(items) => items,
                one => vec![one],
            };
            if let (true, [one]) = (is_several, &replies[..]) {
                replies = vec![one.clone(); steps.len()];
            }
            assert_eq!(replies.len(), steps.len(), "{lines:?}: {replies:?}");
            let both = steps.iter().zip(&replies);
            both.map(|(step, reply)| Answer::read(step.what, reply))
                .collect()
        });
        let request = Request {
            steps,
            is_several,
            asked_us,
            ended_us,
            answers,
        };
        let answered = request.answers.is_some();
        if answered {
            // The checker reports errors.
            request.apply(&mut self.holds).ok();
            let mut released = request.steps.iter().filter(|s| s.what == What::Release);
            let released = released.next_back().map(Step::whose);
            self.given_up = released.or(self.given_up.take());
        }
        self.part.requests.push(request);
        answered
    }

    fn any_order(&mut self) -> Order {
        if self.rng.random_range(0..100) < 10 {
            return self.any_several();
        }
        Order::of(match self.rng.random_range(0..100) {
            // Two locks by one token: both or none.
            0..6 => {
                let token = self.next_token();
                let (mode, first) = (self.any_mode(), self.any_key());
                let mut second = self.any_key();
                while second == first {
                    second = self.any_key();
                }
                let take = |key| self.step(What::Acquire(mode, None), (key, token.clone()));
                [first, second].map(take).to_vec()
            }
            6..14 => vec![self.any_step(), self.any_step()],
            _ => vec![self.any_step()],
        })
    }

    /// Two or three locks at once, by a token that names them.
    fn any_several(&mut self) -> Order {
        let (mut keys, count) = (Vec::new(), self.rng.random_range(2..4));
        let most = if self.is_calm() { CALM_KEYS } else { count };
        while keys.len() < count.min(most) {
            let key = self.any_key();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let numbers: Vec<_> = keys.iter().map(|key| &key["lock:".len()..]).collect();
        let token = format!("{}@{}", self.next_token(), numbers.join("+"));
        let block = match self.rng.random_range(0..100) {
            0..50 => None,
            // A client without holds keeps nobody waiting.
            50..60 if self.holds.is_empty() => Some(0),
            _ => Some(self.rng.random_range(1..60)),
        };
        let first = self.step(What::Release, (String::new(), token));
        let part = |key| Step {
            what: What::Acquire(self.reader_or_writer(), block),
            key,
            ..first.clone()
        };
        Order {
            steps: keys.into_iter().map(part).collect(),
            is_several: true,
        }
    }

    fn any_step(&mut self) -> Step {
        let own = match self.holds.len() {
            0 => None,
            len => self.holds.keys().nth(self.rng.random_range(0..len)),
        };
        let choice: u32 = self.rng.random_range(0..100);
        match own
            .cloned()
            .filter(|_| !self.is_calm() || self.holds.len() >= ENOUGH)
        {
            Some(own) if choice < 25 || (self.holds.len() >= ENOUGH && choice < 60) => {
                self.step(What::Release, own)
            }
            // A new hold of one of several keys would be no grant of all.
            Some(own) if choice < 80 || several_of(&own.1).is_some() => self.step(What::Renew, own),
            Some(own) if choice < 88 => {
                let block = self.rng.random_bool(0.5).then_some(10);
                let what = What::Acquire(self.any_mode(), block);
                self.step(what, own)
            }
            own => {
                let what = [What::Renew, What::Release][self.rng.random_range(0..2)];
                if let Some(given_up) = self.given_up.take_if(|_| choice % 8 == 0) {
                    return self.step(what, given_up);
                }
                let block = match self.rng.random_range(0..100) {
                    0..40 => None,
                    // A client without holds keeps nobody waiting.
                    40..50 if own.is_none() => Some(0),
                    _ => Some(self.rng.random_range(1..60)),
                };
                let what = What::Acquire(self.any_mode(), block);
                let whose = (self.any_key(), self.next_token());
                self.step(what, whose)
            }
        }
    }

    fn step(&mut self, what: What, (key, token): (String, String)) -> Step {
        let ttl_ms = match self.rng.random_range(0..100) {
            0..30 => self.rng.random_range(20..400),
            _ => self.rng.random_range(60_000..600_000),
        };
        Step {
            what,
            key,
            token,
            ttl_ms,
        }
    }

    fn next_token(&mut self) -> String {
        self.tokens += 1;
        format!("c{}.{}", self.number, self.tokens)
    }

    fn is_calm(&self) -> bool {
        self.number >= CLIENTS - CALM_CLIENTS
    }

    fn any_key(&mut self) -> String {
        let calm = KEYS - CALM_KEYS;
        key(match self.is_calm() {
            true => self.rng.random_range(calm..KEYS),
            false => self.rng.random_range(0..calm),
        })
    }

    fn any_mode(&mut self) -> Mode {
        match self.rng.random_bool(0.25) {
            true => Mode::of_limit(self.rng.random_range(2..5)).expect("a limit"),
            false => self.reader_or_writer(),
        }
    }

    fn reader_or_writer(&mut self) -> Mode {
        let exclusive = if self.is_calm() { 0.2 } else { 0.5 };
        match self.rng.random_bool(exclusive) {
            true => Mode::Exclusive,
            false => Mode::Shared,
        }
    }
}
