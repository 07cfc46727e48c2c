//! Forges histories, line by line, to test the checker.

use std::collections::{BTreeMap, BTreeSet};

use redis_lock::lock::codec::encode_effect;
use redis_lock::lock::{Deadline, Effect, Fence, Hold, Mode, Since, Token};

use super::checker::check;
use super::history::{Entry, History, Holder, Mark, Outcome, Parts, Request, Sample, Shown, What};
use super::rule::Rule;

/// A history of one lock under construction. Every command is executed in the millisecond of its
/// request.
pub struct Forged {
    pub history: History,
    pub now_ms: u64,
    /// By fence: when a hold was first granted, and its deadline.
    pub since_ms: BTreeMap<u64, u64>,
    pub deadline_ms: BTreeMap<u64, u64>,
}

pub const KEY: &str = "k";
/// Only of requests for several.
pub const OTHER_KEY: &str = "o";
pub const TTL_MS: u64 = 100;

pub fn start() -> Forged {
    Forged {
        history: History {
            log: Vec::new(),
            requests: BTreeMap::new(),
            samples: BTreeMap::new(),
            pauses: Vec::new(),
            operator: 0,
            clock_lead_ms: 0,
            blocked_at_end: 0,
        },
        now_ms: 1_000_000,
        since_ms: BTreeMap::new(),
        deadline_ms: BTreeMap::new(),
    }
}

/// A history in which `a` holds the lock alone, with the fence 1.
pub fn held() -> Forged {
    let mut h = start();
    h.takes("a", Mode::Exclusive, 1);
    h
}

impl Forged {
    pub fn after(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    pub fn now_us(&self) -> u64 {
        self.now_ms * 1_000
    }

    pub fn mark(&mut self, mark: Mark) {
        self.history.log.push(Entry::Mark(mark));
    }

    /// A request arrives. Its connection has its number.
    pub fn asks(&mut self, token: &str, what: What) -> u64 {
        let number = self.history.requests.len() as u64 + 1;
        let request = Request {
            connection: number as i64,
            by_channel: false,
            what,
            parts: Parts::one(number),
            key: KEY.into(),
            token: token.into(),
            linger_ms: None,
            keep_ms: None,
            at_least_ms: None,
            asked_us: self.now_us(),
            ended_us: 0,
            outcome: Outcome::Silence,
        };
        self.history.requests.insert(number, request);
        self.mark(Mark::Asked(number));
        number
    }

    /// A request for two locks: this one and another.
    pub fn waits_for_two(&mut self, token: &str) -> u64 {
        let first = self.waits(token, Mode::Exclusive);
        let parts = Parts { first, count: 2 };
        let request = self.history.requests.get_mut(&first).unwrap();
        request.parts = parts;
        let mut other = request.clone();
        other.key = OTHER_KEY.into();
        self.history.requests.insert(first + 1, other);
        first
    }

    /// The effect that was made last, for the other key.
    pub fn also_for_the_other_key(&mut self) {
        let Some(Entry::Effect(_, bytes)) = self.history.log.last().cloned() else {
            panic!("no effect");
        };
        self.history
            .log
            .push(Entry::Effect(OTHER_KEY.into(), bytes));
    }

    pub fn waits(&mut self, token: &str, mode: Mode) -> u64 {
        self.asks(token, What::Acquire(mode, Some(0)))
    }

    pub fn ends(&mut self, number: u64, outcome: Outcome) {
        let now_us = self.now_us();
        let request = self.history.requests.get_mut(&number).unwrap();
        request.ended_us = now_us;
        request.outcome = outcome;
    }

    pub fn delivered(&mut self, number: u64, fence: u64) {
        self.ends(number, Outcome::Fence(fence));
    }

    /// The server grants a hold, or keeps it.
    pub fn gives(&mut self, token: &str, mode: Mode, fence: u64) {
        self.gives_until(token, mode, fence, self.now_ms + TTL_MS);
    }

    pub fn gives_until(&mut self, token: &str, mode: Mode, fence: u64, deadline_ms: u64) {
        let since_ms = *self.since_ms.entry(fence).or_insert(self.now_ms);
        self.deadline_ms.insert(fence, deadline_ms);
        self.effect(&Effect::Hold {
            now_ms: self.now_ms,
            mode,
            token: Token::new(token.as_bytes()).unwrap(),
            hold: Hold {
                fence: Fence::new(fence).unwrap(),
                deadline: Deadline::from_millis(deadline_ms).unwrap(),
                since: Since::at(since_ms),
            },
        });
    }

    pub fn ends_hold(&mut self, token: &str) {
        self.effect(&Effect::Release {
            now_ms: self.now_ms,
            token: Token::new(token.as_bytes()).unwrap(),
        });
    }

    pub fn is_capped(&mut self, end_ms: u64) {
        let deadline = Deadline::from_millis(end_ms).unwrap();
        self.effect(&Effect::Cap { deadline });
    }

    fn effect(&mut self, effect: &Effect<'_>) {
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        self.history.log.push(Entry::Effect(KEY.into(), bytes));
    }

    /// Requests without BLOCK, is granted and gets its reply.
    pub fn takes(&mut self, token: &str, mode: Mode, fence: u64) {
        let number = self.asks(token, What::Acquire(mode, None));
        self.grants(number, fence);
    }

    /// The server grants what a request asks for, and its client hears of it.
    pub fn grants(&mut self, number: u64, fence: u64) {
        let request = self.history.requests[&number].clone();
        let What::Acquire(mode, _) = request.what else {
            panic!("it asks for no lock: {request:?}");
        };
        self.gives(&request.token, mode, fence);
        self.delivered(number, fence);
    }

    /// Asks for something, and has its answer at once.
    pub fn answered(&mut self, token: &str, what: What, outcome: Outcome) -> u64 {
        let number = self.asks(token, what);
        self.ends(number, outcome);
        number
    }

    /// Requests the end of a hold and gets it.
    pub fn releases(&mut self, token: &str) {
        self.answered(token, What::Release, Outcome::Done(true));
        self.ends_hold(token);
    }

    pub fn is_deleted(&mut self) {
        self.mark(Mark::Operated);
        self.history.log.push(Entry::Gone(KEY.into()));
    }

    pub fn is_killed(&mut self, number: u64) {
        self.mark(Mark::Killed(number as i64));
        self.ends(number, Outcome::Closed);
    }

    /// The observer reads these holds, with their remaining times, and this queue.
    pub fn shows(&mut self, mode: Option<Mode>, holders: &[(&str, u64)], waiters: &[(&str, Mode)]) {
        let holders = holders.iter().map(|(token, fence)| Holder {
            token: token.to_string(),
            fence: *fence,
            ttl_ms: self
                .deadline_ms
                .get(fence)
                .map_or(TTL_MS, |end| end.saturating_sub(self.now_ms)),
        });
        let waiters = waiters
            .iter()
            .map(|(token, mode)| (token.to_string(), *mode));
        let shown = Shown {
            mode,
            holders: holders.collect(),
            waiters: waiters.collect(),
            absent: Vec::new(),
        };
        self.looks(BTreeMap::from([(KEY.to_string(), shown)]));
    }

    /// In what the observer has just read, nobody listens for these tokens.
    pub fn shown_absent(&mut self, tokens: &[&str]) {
        let mut sample = self.history.samples.last_entry().expect("a sample");
        let shown = sample.get_mut().shown.get_mut(KEY).expect("the lock");
        shown.absent = tokens.iter().map(|token| token.to_string()).collect();
    }

    /// Does not wait, gets null, and keeps its place for so long.
    pub fn polls(&mut self, token: &str, mode: Mode, grace_ms: u64) {
        let number = self.answered(token, What::Acquire(mode, None), Outcome::Null);
        self.keeps(number, grace_ms);
    }

    /// A request waits by a channel, for so long.
    pub fn is_to_be_told(&mut self, token: &str, mode: Mode, timeout_ms: u64) -> u64 {
        let number = self.asks(token, What::Acquire(mode, Some(timeout_ms)));
        let request = self.history.requests.get_mut(&number).unwrap();
        request.by_channel = true;
        number
    }

    /// Its client vanishes now, and the server has noticed it.
    pub fn vanishes(&mut self, number: u64) {
        let since_us = self.now_us();
        self.ends(number, Outcome::Cut { since_us });
    }

    /// The place of a request outlives it by so long.
    pub fn keeps(&mut self, number: u64, grace_ms: u64) {
        let request = self.history.requests.get_mut(&number).unwrap();
        request.keep_ms = Some(grace_ms);
    }

    pub fn looks(&mut self, shown: BTreeMap<String, Shown>) {
        let number = self.history.samples.len() as u64;
        self.mark(Mark::Sampled(number));
        let now_us = self.now_us();
        let sample = Sample {
            asked_us: now_us,
            server_us: now_us,
            ended_us: now_us,
            shown,
        };
        self.history.samples.insert(number, sample);
    }

    pub fn shows_nothing(&mut self) {
        self.shows(None, &[], &[]);
    }

    /// Accepted if it is right, and refused for this rule if not.
    #[track_caller]
    pub fn judged(self, is_right: bool, rule: Rule) {
        match is_right {
            true => self.accepted(),
            false => self.refused_for(rule),
        }
    }

    #[track_caller]
    pub fn accepted(self) {
        if let Err(breaches) = check(&self.history) {
            panic!("{breaches:?}");
        }
    }

    #[track_caller]
    pub fn refused_for(self, rule: Rule) {
        let breaches = check(&self.history).expect_err("a breach");
        let rules: BTreeSet<_> = breaches.iter().map(|breach| breach.rule).collect();
        assert_eq!(rules, BTreeSet::from([rule]), "{breaches:?}");
    }
}
