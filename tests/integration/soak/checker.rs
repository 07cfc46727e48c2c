//! Checks a history offline: walks through the append-only file, with a replay of the locks beside
//! it.
//!
//! The rules are implemented here independently of the module, by scanning all holds each time.

use std::collections::{BTreeMap, HashMap};

use redis_lock::lock::{Effect, Hold, Mode, Token};

use super::findings::Findings;
use super::history::{effect, Entry, History, Mark, Outcome, What};
use super::info_replies::Due;
use super::linger::Bindings;
use super::replay::{tolerates, Replayed};
use super::rule::{Breach, Rule};
use super::timeline::{follow, Timeline};

/// A hold that was not delivered.
#[derive(Clone)]
pub(super) struct Unheard<'h> {
    pub(super) key: &'h str,
    pub(super) token: Vec<u8>,
    pub(super) fence: u64,
    /// The position of its grant.
    pub(super) at: usize,
    /// When it must have ended.
    pub(super) due: Due,
}

pub(super) struct Checker<'h> {
    pub(super) history: &'h History,
    pub(super) timelines: BTreeMap<u64, Timeline<'h>>,
    pub(super) keys: BTreeMap<&'h str, Replayed>,
    /// Requests that may wait, or have just arrived, by key and in the order of arrival.
    pub(super) queues: BTreeMap<&'h str, Vec<u64>>,
    /// Requests whose token has a hold that tolerates more holders, with its fence. They are ahead of
    /// the queue.
    pub(super) upgrades: BTreeMap<u64, u64>,
    /// The keys that were changed by effects since the last command, and when.
    served: BTreeMap<&'h str, (u64, u64)>,
    /// The latest request.
    pub(super) current: Option<u64>,
    /// Whether it had its effect.
    pub(super) carried_out: bool,
    pub(super) now_ms: u64,
    /// The time before the transaction of the log that is being read.
    begun_ms: Option<u64>,
    last_fence: u64,
    /// The delivered fences, with the positions of their first grants.
    delivered: HashMap<u64, usize>,
    /// The new holds since the last command, with the connections that may have requested them.
    fresh: Vec<(Unheard<'h>, Vec<i64>)>,
    /// Holds whose client was killed before delivery.
    pub(super) unheard: Vec<Unheard<'h>>,
    /// What LINGER binds.
    pub(super) bindings: Bindings<'h>,
    /// The keys whose head was seen waiting without a reason.
    pub(super) stuck: BTreeMap<&'h str, (String, Due)>,
    /// Absent places by key and token, and when they must end.
    pub(super) overdue: BTreeMap<(&'h str, &'h str), Due>,
    pub(super) findings: Findings,
    breaches: Vec<Breach>,
}

/// Checks every rule.
pub fn check(history: &History) -> Result<Findings, Vec<Breach>> {
    let mut breaches = Vec::new();
    let timelines = follow(history, &mut breaches);
    let mut delivered = HashMap::new();
    for timeline in timelines.values() {
        if let (Outcome::Fence(fence), Some(at)) = (&timeline.request.outcome, timeline.granted) {
            let first = delivered.entry(*fence).or_insert(at);
            *first = at.min(*first);
        }
    }
    let mut checker = Checker {
        history,
        timelines,
        keys: BTreeMap::new(),
        queues: BTreeMap::new(),
        upgrades: BTreeMap::new(),
        served: BTreeMap::new(),
        current: None,
        carried_out: false,
        now_ms: 0,
        begun_ms: None,
        last_fence: 0,
        delivered,
        fresh: Vec::new(),
        unheard: Vec::new(),
        bindings: Bindings::of(history),
        stuck: BTreeMap::new(),
        overdue: BTreeMap::new(),
        findings: Findings::default(),
        breaches,
    };
    for (at, entry) in history.log.iter().enumerate() {
        checker.step(at, entry);
    }
    checker.finish();
    match checker.breaches.is_empty() {
        true => Ok(checker.findings),
        false => Err(checker.breaches),
    }
}

impl<'h> Checker<'h> {
    pub(super) fn refuse(&mut self, rule: Rule, at: usize, text: impl Into<String>) {
        let text = text.into();
        self.breaches.push(Breach { rule, at, text });
    }

    fn step(&mut self, at: usize, entry: &'h Entry) {
        match entry {
            Entry::Mark(mark) => self.command(at, *mark),
            Entry::Effect(key, bytes) => self.effect(at, key, &effect(bytes)),
            Entry::Begin => self.begun_ms = Some(self.now_ms),
            Entry::End => self.begun_ms = None,
            Entry::Gone(key) => {
                self.keys.remove(&key[..]);
                self.served.remove(&key[..]);
            }
            Entry::Renamed(from, to) => {
                self.unbind(from);
                let moved = self.keys.remove(&from[..]).unwrap_or_default();
                self.keys.insert(to, moved);
                self.served.remove(&from[..]);
                self.served.remove(&to[..]);
                self.note_upgrades(at, to);
            }
            Entry::Guarded(key) => self.guarded(at, key),
            Entry::Ends(key, end_ms) => {
                self.keys.entry(key).or_default().ends(*end_ms);
                self.served.remove(&key[..]);
            }
        }
    }

    /// A command arrives, so the previous one is complete.
    fn command(&mut self, at: usize, mark: Mark) {
        self.end_of_command(at);
        let before = self.current.take().map(|n| &self.history.requests[&n]);
        let fresh = std::mem::take(&mut self.fresh);
        match mark {
            Mark::Asked(number) => self.asked(at, number),
            Mark::Sampled(number) => {
                let sample = &self.history.samples[&number];
                self.now_ms = self.now_ms.max(sample.server_us / 1_000);
                self.loses_those_cut_before(sample.asked_us);
                self.sampled(at, sample);
            }
            // This is the turn of the server's loop of the hand-off. The reply is sent at its end.
            Mark::Killed(id) | Mark::Unblocked(id)
                if before.is_some_and(|request| request.connection == self.history.operator) =>
            {
                let struck = fresh.into_iter().filter(|(_, takers)| takers.contains(&id));
                self.unheard.extend(struck.map(|(unheard, _)| unheard));
            }
            Mark::Killed(_) | Mark::Unblocked(_) | Mark::Operated => {}
        }
        if let Mark::Killed(id) = mark {
            self.loses(id, self.now_ms * 1_000);
        }
    }

    fn effect(&mut self, at: usize, key: &'h str, effect: &Effect<'_>) {
        self.findings.effects += 1;
        let now_ms = match *effect {
            Effect::Hold { now_ms, .. } | Effect::Release { now_ms, .. } => now_ms,
            Effect::Cap { .. } => self.now_ms,
        };
        // The release of the only hold is recorded without its time, which lies between the known
        // times before and after it.
        let (now_ms, latest_ms) = match now_ms {
            0 => (self.now_ms, self.next_known_ms(at)),
            _ => (now_ms, now_ms),
        };
        // A step that serves several keys goes back to one with the time of its beginning.
        let of_key = self.served.get(key).map_or(0, |(served_ms, _)| *served_ms);
        let earliest_ms = self.begun_ms.map_or(self.now_ms, |begun| begun.max(of_key));
        if now_ms + self.history.clock_lead_ms < earliest_ms {
            self.refuse(
                Rule::TimeOrder,
                at,
                format!("{effect:?} before {}", self.now_ms),
            );
        }
        self.now_ms = self.now_ms.max(now_ms);
        match *effect {
            Effect::Hold {
                mode, token, hold, ..
            } => self.held(at, key, now_ms, mode, token, hold),
            Effect::Release { token, .. } => self.released(at, key, now_ms, token),
            Effect::Cap { .. } => {}
        }
        if let Effect::Hold { token, .. } | Effect::Release { token, .. } = *effect {
            self.served.insert(key, (now_ms, latest_ms));
            // The effect also changes the key's own expiry, so the holds must have been capped to
            // it.
            let state = self.keys.entry(key).or_default();
            if state.outlives_key(token.as_bytes(), now_ms) {
                let live = format!("{key}: {:?}", state.live(now_ms));
                self.refuse(Rule::Lengthened, at, live);
            }
        }
        self.stuck.remove(key);
        self.keys.entry(key).or_default().apply(effect);
        self.note_upgrades(at, key);
    }

    fn held(
        &mut self,
        at: usize,
        key: &'h str,
        now_ms: u64,
        mode: Mode,
        token: Token<'_>,
        hold: Hold,
    ) {
        let state = self.keys.entry(key).or_default();
        let own = state.own(token.as_bytes(), now_ms);
        let excluded = state.excludes(token.as_bytes(), mode, now_ms);
        let what = format!("{mode:?} {token:?} {hold:?} on {key} at {now_ms}");
        if excluded {
            let text = format!("{what} beside {:?}", state.live(now_ms));
            self.refuse(Rule::TwoHolders, at, text);
        }
        self.carried_out |= self.is_current(What::Renew, key, token) && own.is_some();
        match own {
            Some(own) if own.fence == hold.fence && own.since == hold.since => {
                self.kept_at_least(at, key, token, own, hold);
            }
            Some(own) => self.refuse(Rule::KeptFence, at, format!("{what}, had {own:?}")),
            None => {
                self.granted(at, key, now_ms, mode, token, hold);
            }
        }
    }

    /// A new hold: a client must have requested it, and no other may have been ahead.
    fn granted(
        &mut self,
        at: usize,
        key: &'h str,
        now_ms: u64,
        mode: Mode,
        token: Token<'_>,
        hold: Hold,
    ) {
        self.findings.grants += 1;
        self.findings.permits += usize::from(matches!(mode, Mode::Counted(_)));
        let what = format!("{mode:?} {token:?} {hold:?} on {key} at {now_ms}");
        let takers = self.queue(key).filter(|timeline| {
            timeline.mode == mode
                && timeline.request.token.as_bytes() == token.as_bytes()
                && timeline.may_wait(at, now_ms)
        });
        let takers: Vec<_> = takers.collect();
        // The first request may belong to a dead client. Taking it for the owner can only excuse.
        let Some(first) = takers.first() else {
            return self.refuse(Rule::Ghost, at, what);
        };
        let (parts, first_number) = (first.request.parts, first.number);
        let by_channel = first.request.by_channel;
        let is_another_part = parts.are_several() && self.is_granted_on(at, key, token, hold.fence);
        let is_torn = parts.are_several() && !self.is_whole(at, parts, token, hold.fence);
        let heard = self.delivered.contains_key(&hold.fence.get());
        let excused = takers.iter().any(|timeline| {
            let outcome = &timeline.request.outcome;
            matches!(
                outcome,
                Outcome::Cut { .. } | Outcome::Closed | Outcome::Error(_)
            )
        });
        let waited = self.current != Some(parts.first);
        // A grant that a channel has received stays, even if its client is killed before it reads.
        let blocked = takers.iter().filter(|taker| !taker.request.by_channel);
        let connections = blocked
            .map(|timeline| timeline.request.connection)
            .collect();
        // With KEEP the hold stays for the grace.
        let keeps = takers.iter().map(|taker| taker.request.keep_ms);
        let keep_ms = keeps.flatten().max().unwrap_or(0);
        let passed = self.queue(key).find(|other| {
            let stands_before = other.place.1 < first.place.0 || self.is_ahead(key, other, now_ms);
            other.request.token != first.request.token
                && stands_before
                && other.surely_waits(at, now_ms)
        });
        let passed = passed.map(|passed| &passed.request);
        if let Some(passed) = passed {
            let text = format!("{what} for {:?} past {passed:?}", first.request);
            self.refuse(Rule::OutOfOrder, at, text);
        }
        self.check_beside_kept(at, key, now_ms, first_number, &what);
        if hold.fence.get() <= self.last_fence && !is_another_part {
            let text = format!("{what} after {}", self.last_fence);
            self.refuse(Rule::FenceOrder, at, text);
        }
        self.last_fence = self.last_fence.max(hold.fence.get());
        if is_torn {
            self.refuse(Rule::Torn, at, what.clone());
        }
        self.findings.several += usize::from(parts.are_several() && !is_another_part);
        self.findings.hand_offs += usize::from(waited);
        if waited && by_channel && !is_another_part {
            self.findings.notified += 1;
            self.findings.notified_several += usize::from(parts.are_several());
        }
        if !heard && !excused {
            self.refuse(Rule::Unheard, at, what);
        }
        if !heard {
            self.findings.unheard += 1;
            let unheard = Unheard {
                key,
                token: token.as_bytes().to_vec(),
                fence: hold.fence.get(),
                at,
                due: Due::since((now_ms + keep_ms) * 1_000),
            };
            self.fresh.push((unheard, connections));
        }
    }

    fn released(&mut self, at: usize, key: &'h str, now_ms: u64, token: Token<'_>) {
        let state = self.keys.entry(key).or_default();
        let Some(own) = state.own(token.as_bytes(), now_ms) else {
            return; // The server removes expired holds.
        };
        if self.is_current(What::Release, key, token) && !self.carried_out {
            self.carried_out = true;
            self.ended_at_least(at, key, token, own, now_ms);
            return;
        }
        if self.may_end_with_its_connection(at, key, token, now_ms) {
            self.findings.lingered += 1;
            return;
        }
        self.findings.taken_back += 1;
        let fence = own.fence.get();
        let delivered = self.delivered.get(&fence);
        if delivered.is_some_and(|delivered| *delivered < at) {
            let text = format!("{token:?} on {key} at {now_ms}, {own:?}");
            self.refuse(Rule::TakenAway, at, text);
        }
    }

    /// Whether this is the command in execution.
    pub(super) fn is_current(&self, what: What, key: &str, token: Token<'_>) -> bool {
        let current = self.current.map(|number| &self.history.requests[&number]);
        current.is_some_and(|request| {
            request.what == what
                && request.key == key
                && request.token.as_bytes() == token.as_bytes()
                && request.outcome != Outcome::Done(false)
        })
    }

    fn end_of_command(&mut self, at: usize) {
        if let Some(request) = self.current.map(|n| &self.history.requests[&n]) {
            if request.outcome == Outcome::Done(true) && !self.carried_out {
                self.refuse(Rule::WrongAnswer, at, format!("1 for nothing: {request:?}"));
            }
        }
        for (key, (now_ms, latest_ms)) in std::mem::take(&mut self.served) {
            let head = self.surely_next(at, key, now_ms);
            if let Some(head) = head.filter(|head| head.surely_waits(at, latest_ms)) {
                let text = format!("{key} at {now_ms}: {:?}", head.request);
                self.refuse(Rule::Idle, at, text);
            }
        }
    }

    /// The time of the next effect that records one.
    pub(super) fn next_known_ms(&self, at: usize) -> u64 {
        let later = self.history.log.iter().skip(at);
        let mut known = later.filter_map(|entry| match entry {
            Entry::Effect(_, bytes) => match effect(bytes) {
                Effect::Hold { now_ms, .. } | Effect::Release { now_ms, .. } => Some(now_ms),
                Effect::Cap { .. } => None,
            },
            _ => None,
        });
        known.find(|now_ms| *now_ms > 0).unwrap_or(u64::MAX)
    }

    /// The request that should have the lock at this position. `None` if there is none, or it is
    /// not certain.
    fn surely_next(&self, at: usize, key: &str, now_ms: u64) -> Option<&Timeline<'h>> {
        let waiting = || self.queue(key).filter(|c| c.may_wait(at, now_ms));
        let is_surely_first = |timeline: &&Timeline<'h>| {
            let token = &timeline.request.token;
            let others = self.queue(key).filter(|c| c.may_have_place(at, now_ms));
            let mut others = others.filter(|other| other.request.token != *token);
            others.all(|other| {
                let is_ahead = self.is_ahead(key, other, now_ms);
                timeline.place.1 < other.place.0 && !is_ahead
            })
        };
        // Of several upgrades the one that tolerates the most holders comes first.
        let head = waiting()
            .filter(|timeline| self.is_ahead(key, timeline, now_ms))
            .max_by_key(|timeline| tolerates(timeline.mode))
            .or_else(|| waiting().find(is_surely_first))?;
        let token = head.request.token.as_bytes();
        let excluded = self.keys[key].excludes(token, head.mode, now_ms);
        // The other keys of one for several may be over without their timers. Samples tell.
        let is_next = !excluded && !head.request.parts.are_several();
        (is_next && head.surely_waits(at, now_ms)).then_some(head)
    }

    /// Whether a request is ahead of the queue, because its token still has its wider hold.
    pub(super) fn is_ahead(&self, key: &str, timeline: &Timeline<'_>, now_ms: u64) -> bool {
        let token = timeline.request.token.as_bytes();
        self.upgrades.get(&timeline.number).is_some_and(|wider| {
            let state = self.keys.get(key);
            let state = state.filter(|state| state.narrows(token, timeline.mode, now_ms));
            let own = state.and_then(|state| state.own(token, now_ms));
            own.is_some_and(|own| own.fence.get() == *wider)
        })
    }

    pub(super) fn was_upgrade(&self, timeline: &Timeline<'_>) -> bool {
        self.upgrades.contains_key(&timeline.number)
    }

    /// Requests that wait for a key or have arrived, in the order of arrival.
    pub(super) fn queue(&self, key: &str) -> impl Iterator<Item = &Timeline<'h>> {
        let numbers = self.queues.get(key).into_iter().flatten();
        numbers.map(|number| &self.timelines[number])
    }

    pub(super) fn replayed(&self, key: &str) -> Option<&Replayed> {
        self.keys.get(key)
    }

    fn finish(&mut self) {
        let end = self.history.log.len();
        self.end_of_command(end);
        let requests = self.history.requests.iter();
        let whole = requests.filter(|(number, request)| request.parts.first == **number);
        self.findings.requests = whole.count();
        let timeouts = self.timelines.values().filter(|timeline| {
            timeline.block.is_some() && timeline.request.outcome == Outcome::Null
        });
        self.findings.timeouts = timeouts.count();
        let deaf = self.timelines.values().filter(|t| t.deaf.is_some());
        let (kept, others): (Vec<_>, Vec<_>) = deaf.partition(|t| t.kept.is_some());
        (self.findings.deaf_kept, self.findings.deaf) = (kept.len(), others.len());
        if self.history.blocked_at_end != 0 {
            let text = format!("{} clients are blocked", self.history.blocked_at_end);
            self.refuse(Rule::LeftOver, end, text);
        }
        if let Some((_, sample)) = self.history.samples.last_key_value() {
            let waiters = sample.shown.values().map(|shown| shown.waiters.len());
            if waiters.sum::<usize>() > 0 {
                self.refuse(Rule::LeftOver, end, format!("in a queue: {sample:?}"));
            }
        }
    }
}
