//! The model of a lock server, and the judge of a [`Record`].
//!
//! It walks through the append-only file with the holds that follow from it. Between two looks at a key
//! there is at most one request for it, so each step of a queue is small: [`queue`] says which ones a
//! server may make. [`places`]: who may wait. [`answers`]: what a client may be told. [`ends`]: holds that must end in time.
//! [`starts`]: what a start must keep.
//!
//! Times are those of the server. A bound of time counts **work**: the time in which the server is seen
//! to go through its loop. A machine that stands still does no work.

mod answers;
mod ends;
mod lock;
mod places;
mod queue;
mod starts;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::record::{Answer, Entry, Held, Look, Mode, Record, Request, Shown, What};
use super::requests::Finding;
use ends::Due;
use lock::Lock;
use queue::View;

/// After so much work the server's timer has done what was due.
const LATE_US: u64 = 300_000;

/// Two looks that are further apart show no more work than this.
const TURN_US: u64 = 5_000;

type Keys<'l> = BTreeMap<&'l str, Lock<'l>>;

/// A new hold.
#[derive(Clone, Debug)]
struct Grant<'l> {
    at: usize,
    key: &'l str,
    held: Held<'l>,
    /// The other holds at that time.
    beside: Vec<(&'l str, Mode)>,
    /// It has the fence of another key of its request.
    is_part: bool,
}

pub struct Model<'r, 'l> {
    record: &'r Record<'l>,
    /// The server's two databases.
    keys: [Keys<'l>; 2],
    views: BTreeMap<&'l str, View<'r, 'l>>,
    /// The request whose mark came last.
    current: Option<&'r Request<'l>>,
    /// Whether it had its effect.
    is_carried_out: bool,
    /// The server's time is at least this.
    now_ms: u64,
    /// At each position: the next known time.
    next_ms: Vec<u64>,
    /// The server's time and its work so far, at each look.
    work: Vec<(u64, u64)>,
    last_fence: u64,
    /// The fences that clients were told.
    told: HashSet<u64>,
    /// What the transaction of the file that is being read has granted.
    step: Option<Vec<Grant<'l>>>,
    /// What has been granted since the last mark.
    fresh: Vec<Grant<'l>>,
    dues: Vec<Due<'l>>,
    /// Connections that their clients have closed, by when. The next one is the last.
    closed: Vec<(u64, i64)>,
    /// Fences of holds that LINGER binds no more.
    unbound: HashSet<u64>,
    /// Heads that could enter, and places that nobody listens at: since how much work.
    stuck: BTreeMap<&'l str, (&'l str, u64)>,
    absent: BTreeMap<(&'l str, &'l str), u64>,
    /// Tokens that had a hold while they waited.
    upgraded: BTreeSet<(&'l str, &'l str)>,
    /// When somebody was last known to listen at a place, in the server's microseconds.
    listened: BTreeMap<(&'l str, &'l str), u64>,
    /// The keys and the position of the last start.
    started: (Keys<'l>, usize),
    started_us: u64,
    /// The position of the last FLUSHALL or FLUSHDB, and of the last time that locks moved.
    flushed: usize,
    moved: usize,
    found: Vec<Finding>,
    pub counts: Counts,
}

/// How much was judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub grants: usize,
    pub handed_over: usize,
    pub of_several: usize,
    pub by_channel: usize,
    pub taken_back: usize,
    pub absent: usize,
    pub cycles: usize,
    pub guarded: usize,
    pub kept: usize,
}

impl Counts {
    /// What a few seconds of traffic cannot lack.
    pub fn are_of_every_kind(&self) -> bool {
        let all = [
            self.grants,
            self.handed_over,
            self.of_several,
            self.by_channel,
            self.absent,
            self.guarded,
        ];
        all.iter().all(|count| *count > 0)
    }
}

/// What breaks a rule.
pub fn judge(record: &Record<'_>) -> (Vec<Finding>, Counts) {
    let mut model = Model::new(record);
    for (at, entry) in record.log.iter().enumerate() {
        model.read(at, entry);
    }
    model.finish();
    (model.found, model.counts)
}

impl<'r, 'l> Model<'r, 'l> {
    fn new(record: &'r Record<'l>) -> Self {
        let numbers = record
            .requests
            .iter()
            .filter(|one| one.what == What::Acquire);
        let told = numbers.filter_map(|one| match one.answer {
            Answer::Number(fence) => Some(fence),
            _ => None,
        });
        let mut closed: Vec<_> = record.lost_us.iter().map(|(c, us)| (*us, *c)).collect();
        closed.sort_unstable_by(|one, other| other.cmp(one));
        Self {
            record,
            keys: Default::default(),
            views: BTreeMap::new(),
            current: None,
            is_carried_out: false,
            now_ms: 0,
            next_ms: next_times(record),
            work: vec![(0, 0)],
            last_fence: 0,
            told: told.collect(),
            step: None,
            fresh: Vec::new(),
            dues: Vec::new(),
            closed,
            unbound: HashSet::new(),
            stuck: BTreeMap::new(),
            absent: BTreeMap::new(),
            upgraded: BTreeSet::new(),
            listened: BTreeMap::new(),
            started: Default::default(),
            started_us: 0,
            flushed: 0,
            moved: 0,
            found: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn refuse(&mut self, rule: &'static str, text: String) {
        let now_us = self.now_ms * 1_000;
        self.found.push(Finding {
            judge: rule,
            from_us: now_us,
            until_us: now_us,
            text,
        });
    }

    fn read(&mut self, at: usize, entry: &'r Entry<'l>) {
        match *entry {
            Entry::Mark(id) => self.arrive(at, id),
            Entry::Begin => self.step = Some(Vec::new()),
            Entry::End => self.end_of_step(),
            Entry::Hold(key, held, now_ms) => self.held(at, key, held, now_ms),
            Entry::Release(key, token, now_ms) => self.released(at, key, token, now_ms),
            Entry::Cap(key, end_ms) => self.keys[0].entry(key).or_default().cap(end_ms),
            Entry::Gone(key) => drop(self.keys[0].remove(key)),
            Entry::Flushed(is_all) => {
                self.keys[0].clear();
                if is_all {
                    self.keys[1].clear();
                }
                self.flushed = at;
            }
            Entry::Swapped => self.keys.reverse(),
            Entry::Elsewhere(ref entry) => starts::apply(&mut self.keys[1], entry),
            Entry::Renamed(from, to) => {
                let moved = self.keys[0].remove(from).unwrap_or_default();
                let fences = moved.live(0).map(|held| held.fence);
                self.unbound.extend(fences);
                self.keys[0].insert(to, moved);
            }
            Entry::Ends(key, end_ms) => self.keys[0].entry(key).or_default().ends(end_ms),
            Entry::Counted(key) => self.counted(key),
            Entry::Starts(start) => self.start(at, start),
        }
        if matches!(
            entry,
            Entry::Swapped | Entry::Renamed(..) | Entry::Flushed(_)
        ) {
            self.moved = at;
            // The lock that came may have a hold of a waiter. That is an upgrade until the hold
            // ends, even if no look shows it.
            for (key, lock) in &self.keys[0] {
                let holders = lock.live(self.now_ms).map(|held| (*key, held.token));
                self.upgraded.extend(holders);
            }
        }
    }

    /// A request arrives, so the one before is complete. Its look shows what it meets.
    fn arrive(&mut self, at: usize, id: &'l str) {
        self.end_of_command();
        let before = self.current.take();
        let fresh = std::mem::take(&mut self.fresh);
        let request = self.record.by_id.get(id);
        let request = request.map(|number| &self.record.requests[*number]);
        if let Some(look) = self.record.looks.get(id) {
            self.see(at, look);
        }
        let Some(request) = request else {
            return;
        };
        while let Some((us, connection)) = self.closed.last().copied() {
            if us >= request.sent_us {
                break;
            }
            self.closed.pop();
            self.lose(connection);
        }
        self.check_answer(at, request);
        match request.what {
            What::Strike(connection) => {
                let is_together = before.is_some() && request.who.ends_with("at-once");
                self.strike(connection, fresh.into_iter().filter(|_| is_together));
            }
            What::Pause(_) => self.absent.clear(),
            _ => {
                for (key, _) in &request.keys {
                    let lock = self.keys[0].get(key);
                    if lock.is_some_and(|lock| lock.own(request.token, self.now_ms).is_some()) {
                        self.upgraded.insert((key, request.token));
                    }
                    self.views.entry(key).or_default().came.push(request);
                }
            }
        }
        self.current = Some(request);
        self.is_carried_out = false;
    }

    fn see(&mut self, at: usize, look: &'r Look<'l>) {
        self.now_ms = self.now_ms.max(look.server_us / 1_000);
        let (last_us, done_us) = self.work.last().copied().unwrap_or_default();
        let gap_us = look.server_us.saturating_sub(last_us);
        self.work
            .push((look.server_us, done_us + gap_us.min(TURN_US)));
        let from_ms = look.server_us / 1_000;
        let during = (from_ms, self.next_ms[at + 1].max(from_ms));
        for (key, shown) in &look.keys {
            let lock = self.keys[0].get(key).cloned().unwrap_or_default();
            if !lock.fits(shown, during) {
                let holds: Vec<_> = lock.live(0).collect();
                let text = format!(
                    "{key} has {holds:?} from {} to {}: {shown:?}",
                    during.0, during.1
                );
                self.refuse("shown holds", text);
            }
            let view = self.views.remove(key).unwrap_or_default();
            self.step_of_queue(at, key, &view, shown, look);
            self.check_places(at, key, shown, look);
            let next = View::of(at, look.server_us, shown);
            self.views.insert(key, next);
        }
        self.check_dues(look);
    }

    /// The work until an instant of the server.
    fn work_at(&self, server_us: u64) -> u64 {
        let later = self.work.partition_point(|(us, _)| *us <= server_us);
        self.work.get(later.max(1) - 1).map_or(0, |(_, work)| *work)
    }

    fn worked(&self) -> u64 {
        self.work.last().map_or(0, |(_, work)| *work)
    }

    fn held(&mut self, at: usize, key: &'l str, held: Held<'l>, now_ms: u64) {
        self.check_time(key, now_ms);
        let mut lock = self.keys[0].remove(key).unwrap_or_default();
        let what = format!("{held:?} of {key} at {now_ms}");
        if !lock.admits(held.token, held.mode, now_ms) {
            let beside: Vec<_> = lock.live(now_ms).collect();
            self.refuse("two holders", format!("{what} beside {beside:?}"));
        }
        match lock.own(held.token, now_ms) {
            None => self.granted(at, key, held, now_ms, &lock),
            Some(own) if (own.fence, own.since_ms) != (held.fence, held.since_ms) => {
                self.refuse("kept fence", format!("{what}, had {own:?}"));
            }
            Some(own) => {
                self.kept_at_least(key, &lock, own, held);
                // What follows it in the log may be the timer's: LINGER shortens the same hold.
                if self.is_current(What::Renew, key, held.token) && !self.is_carried_out {
                    self.is_carried_out = true;
                    let ttl_ms = self.current.and_then(|one| one.ttl_ms);
                    if ttl_ms != held.deadline_ms.checked_sub(now_ms) {
                        self.refuse("lease", what);
                    }
                }
                let view = self.views.entry(key).or_default();
                view.again.push(held.token);
                if own.mode != held.mode {
                    view.converted.push(held.token);
                }
            }
        }
        self.check_length(key, &lock, held.token, now_ms);
        lock.hold(held, now_ms);
        self.keys[0].insert(key, lock);
    }

    fn granted(&mut self, at: usize, key: &'l str, held: Held<'l>, now_ms: u64, lock: &Lock<'l>) {
        self.counts.grants += 1;
        let others = lock.live(now_ms).map(|other| (other.token, other.mode));
        let is_same =
            |one: &Grant<'_>| (one.held.token, one.held.fence) == (held.token, held.fence);
        let grant = Grant {
            at,
            key,
            held,
            beside: others.collect(),
            is_part: self.step.iter().flatten().any(is_same),
        };
        if held.fence <= self.last_fence && !grant.is_part {
            let text = format!("{held:?} of {key} after {}", self.last_fence);
            self.refuse("fences", text);
        }
        self.last_fence = self.last_fence.max(held.fence);
        if self.step.is_none() && self.several_of(at, key, held.token).is_some() {
            self.refuse("torn", format!("{held:?} of {key} alone"));
        }
        self.step
            .iter_mut()
            .for_each(|step| step.push(grant.clone()));
        self.fresh.push(grant.clone());
        self.views.entry(key).or_default().grants.push(grant);
    }

    /// The request for several keys by which a token may get one of them.
    fn several_of(&self, at: usize, key: &str, token: &str) -> Option<&'r Request<'l>> {
        let waits = |one: &&Request<'_>| one.arrived < Some(at) && at <= one.ended_at;
        let mut waiting = self.record.acquires_of(key, token).filter(waits);
        waiting
            .next()
            .filter(|one| one.is_for_several() && waiting.next().is_none())
    }

    /// A step that grants one of several keys grants all of them, under one fence.
    fn end_of_step(&mut self) {
        let step = self.step.take().unwrap_or_default();
        for grant in &step {
            let Some(request) = self.several_of(grant.at, grant.key, grant.held.token) else {
                continue;
            };
            let same = step.iter().filter(|one| {
                (one.held.token, one.held.fence) == (grant.held.token, grant.held.fence)
            });
            let has: BTreeSet<_> = same.map(|one| one.key).collect();
            if has != request.keys.iter().map(|(key, _)| *key).collect() {
                let text = format!("{has:?} of {}", request.text);
                self.refuse("torn", text);
            } else if !grant.is_part {
                self.counts.of_several += 1;
            }
        }
    }

    fn check_time(&mut self, key: &str, now_ms: u64) {
        // A step that serves several keys goes back to its beginning for each of them.
        if self.step.is_none() && now_ms + self.record.lead_ms < self.now_ms {
            let text = format!("{key} at {now_ms} after {}", self.now_ms);
            self.refuse("time", text);
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// An effect ends the key's own expiry, so all holds must have been cut to it.
    fn check_length(&mut self, key: &str, lock: &Lock<'l>, token: &str, now_ms: u64) {
        if lock.outlives_key(token, now_ms) {
            let holds: Vec<_> = lock.live(now_ms).collect();
            self.refuse("lengthened", format!("{holds:?} of {key}"));
        }
    }

    fn is_current(&self, what: What, key: &str, token: &str) -> bool {
        self.current.is_some_and(|one| {
            let is_it = one.what == what && one.token == token && one.mode_of(key).is_some();
            is_it && one.answer != Answer::Number(0) && !one.is_error("")
        })
    }

    fn finish(&mut self) {
        self.end_of_command();
        self.check_all_answered(u64::MAX, u64::MAX);
        let views = std::mem::take(&mut self.views);
        for (key, view) in views {
            let shown: Shown<'_> = view.shown.cloned().unwrap_or_default();
            if !shown.places.is_empty() {
                let text = format!("{key} has {:?} in the end", shown.places);
                self.refuse("left over", text);
            }
        }
        if self.record.blocked > 0 {
            let text = format!("{} clients are blocked in the end", self.record.blocked);
            self.refuse("left over", text);
        }
    }
}

/// For each position the next time that the file or a look tells.
fn next_times(record: &Record<'_>) -> Vec<u64> {
    let mut next_ms = vec![u64::MAX; record.log.len() + 1];
    for (at, entry) in record.log.iter().enumerate().rev() {
        next_ms[at] = match entry {
            Entry::Hold(.., now_ms) | Entry::Release(.., now_ms) if *now_ms > 0 => *now_ms,
            Entry::Mark(id) => record
                .looks
                .get(id)
                .map_or(next_ms[at + 1], |look| look.server_us / 1_000),
            _ => next_ms[at + 1],
        };
    }
    next_ms
}
