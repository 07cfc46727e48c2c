//! The rules of each server, said naively: a list of holds that follows the bytes alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{guard, Cluster, Event, Mode, Place, RequestId, Server, Snapshot, State};
use crate::engine::simulation::node::{Record, Value};
use crate::lock::codec::{self, decode};
use crate::lock::Effect;

/// What a server has according to what it has sent and received.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    holds: BTreeMap<(Place, u8), Held>,
    /// The largest fence that it has seen.
    seen: u64,
    /// What its fences must be above, because others gave it before its promotion.
    pub(super) floor: u64,
    /// The same, with what was given ahead of a clock. Nobody promises to be above it.
    pub(super) given_before: u64,
    /// Grants whose owners were gone before they heard of them: they may be revoked.
    lost: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    mode: Mode,
    fence: u64,
    deadline_ms: u64,
}

/// How far a fence may be ahead of the clock of a server that follows its clock.
const AHEAD_US: u64 = 10_000;

impl Ledger {
    /// What a file or a full copy has.
    pub(super) fn load(&mut self, snapshot: &Snapshot) {
        self.holds.clear();
        for (place, bytes, _) in &snapshot.locks {
            let Ok(codec::Record::State(lock)) = decode(bytes) else {
                panic!("no lock");
            };
            for (token, mode, hold) in lock.holds() {
                let token = token.as_token().as_bytes()[0];
                self.put(*place, token, mode, &hold);
            }
        }
        if let Some(Ok(codec::Record::Fence(fence))) = snapshot.fence_bytes().map(decode) {
            self.seen = self.seen.max(fence.get());
        }
    }

    /// A record of the primary.
    pub(super) fn receive(&mut self, record: &Record) {
        let place = record.at;
        match record.change.effect() {
            None => self.holds.retain(|(at, _), _| *at != place),
            Some(effect) => self.apply(place, &effect),
        }
    }

    fn put(&mut self, place: Place, token: u8, mode: Mode, hold: &crate::lock::Hold) {
        let held = Held {
            mode,
            fence: hold.fence.get(),
            deadline_ms: hold.deadline.ms(),
        };
        self.holds.insert((place, token), held);
        self.seen = self.seen.max(held.fence);
    }

    fn apply(&mut self, place: Place, effect: &Effect<'_>) {
        let is_over = |held: &Held, ms| held.deadline_ms < ms;
        let mut purge = |ms| {
            let holds = &mut self.holds;
            holds.retain(|(at, _), held| *at != place || !is_over(held, ms));
        };
        match effect {
            Effect::Hold {
                now_ms,
                mode,
                token,
                hold,
            } => {
                purge(*now_ms);
                self.put(place, token.as_bytes()[0], *mode, hold);
            }
            Effect::Release { now_ms, token } => {
                purge(*now_ms);
                self.holds.remove(&(place, token.as_bytes()[0]));
            }
            Effect::Cap { .. } => panic!("nobody has set another end"),
        }
    }

    /// The holds of these tokens may end: their connection was lost.
    pub(super) fn may_end(&mut self, tokens: &BTreeSet<u8>) {
        let theirs = self.holds.iter().filter(|((_, t), _)| tokens.contains(t));
        self.lost.extend(theirs.map(|(_, held)| held.fence));
    }

    /// The grant with this fence may be revoked.
    pub(super) fn may_revoke(&mut self, fence: u64) {
        self.lost.insert(fence);
    }

    /// Checks a record of the server's own, which it sends at that time of its wall clock.
    fn check(&mut self, record: &Record, asker: Option<u8>, now_ms: u64) {
        let place = record.at;
        let lives = |held: &Held| held.deadline_ms >= now_ms;
        let Some(effect) = record.change.effect() else {
            let mut here = self.holds.iter().filter(|((at, _), _)| *at == place);
            let living = here.find(|(_, held)| lives(held));
            assert_eq!(living, None, "a live hold is deleted");
            return;
        };
        match effect {
            Effect::Hold {
                mode, token, hold, ..
            } => {
                let token = token.as_bytes()[0];
                let mut least = mode.tolerates();
                let mut holders = 1;
                for ((at, other), held) in &self.holds {
                    if *at == place && *other != token && lives(held) {
                        least = least.min(held.mode.tolerates());
                        holders += 1;
                    }
                }
                assert!(holders <= least, "{holders} holders, {least} tolerated");
                let fence = hold.fence.get();
                let own = self.holds.get(&(place, token));
                let goes_on = own.is_some_and(|own| own.fence == fence && lives(own));
                // One of several keys of one grant.
                let mut all = self.holds.iter();
                let is_of_same =
                    all.any(|((at, t), held)| *at != place && *t == token && held.fence == fence);
                if !goes_on && !is_of_same {
                    assert!(fence > self.seen, "fence {fence} after {}", self.seen);
                    let floor = self.floor;
                    assert!(fence > floor, "fence {fence} after {floor} elsewhere");
                }
            }
            Effect::Release { token, .. } => {
                let token = token.as_bytes()[0];
                let lost = |held: &Held| self.lost.contains(&held.fence);
                let own = self.holds.get(&(place, token)).filter(|own| lives(own));
                let may = own.is_none_or(|own| asker == Some(token) || lost(own));
                assert!(may, "a live hold is released");
            }
            Effect::Cap { .. } => panic!("nobody has set another end"),
        }
    }

    /// The mode of a hold.
    pub(super) fn mode_of(&self, place: Place, token: u8) -> Option<Mode> {
        self.holds.get(&(place, token)).map(|held| held.mode)
    }

    /// A client is told only of a hold that is there.
    pub(super) fn check_told(&self, place: Place, token: u8, fence: u64) {
        let own = self.holds.get(&(place, token));
        let fence_here = own.map(|held| held.fence);
        assert_eq!(fence_here, Some(fence), "a client is told of another hold");
    }
}

impl Server {
    /// A client is answered by its command, or once while it is blocked.
    pub(super) fn check_answers(&self, asker: Option<RequestId>, events: &[(RequestId, Event)]) {
        let mut answered = BTreeSet::new();
        for (id, event) in events {
            let may = asker == Some(*id) || self.blocked.contains(id);
            assert!(may, "{event:?} for client {id}, which does not wait");
            let is_first = *event == Event::Waits || answered.insert(id);
            assert!(is_first, "{event:?} for client {id}, which was answered");
        }
    }

    /// What the bytes say is what the server has.
    pub(super) fn check_ledger(&self) {
        let mut holds = BTreeMap::new();
        for (place, value) in self.node.values().iter() {
            let Value::Lock(lock, _) = value else {
                panic!("no lock");
            };
            for (token, mode, hold) in lock.holds() {
                let token = token.as_token().as_bytes()[0];
                let held = Held {
                    mode,
                    fence: hold.fence.get(),
                    deadline_ms: hold.deadline.ms(),
                };
                holds.insert((*place, token), held);
            }
        }
        assert_eq!(holds, self.ledger.holds, "the bytes say otherwise");
    }
}

impl Cluster {
    /// Checks what a server sends.
    pub(super) fn check_sent(&mut self, s: usize, asker: Option<u8>, sent: &[Record]) {
        let server = &mut self.servers[s];
        let scene = server.node.memory.scene.get();
        let sent = sent.iter().filter(|record| record.change.is_of_key());
        let sent: Vec<&Record> = sent.collect();
        assert!(sent.is_empty() || server.is_primary, "a replica decides");
        for record in sent {
            server.ledger.check(record, asker, scene.now_ms);
            let seen = server.ledger.seen;
            server.ledger.receive(record);
            let fence = server.ledger.seen;
            if fence > seen {
                let is_guarded = self.settings.guard.scope != guard::Scope::Off;
                let is_whole = self.settings.guard.without.is_none();
                let last = self.given;
                let rises = fence > last || !(is_guarded && is_whole);
                assert!(rises, "fence {fence} after {last} of any server");
                self.tally.overtaken += u64::from(fence <= server.ledger.given_before);
                self.given = self.given.max(fence);
                if fence <= scene.now_ms * 1_000 + AHEAD_US {
                    self.given_by_clock = self.given_by_clock.max(fence);
                }
            }
        }
        server.check_ledger();
    }

    /// A replica that has received everything has what its primary has.
    pub(super) fn check_replicas(&self) {
        for replica in &self.servers {
            let Some(link) = &replica.link else {
                continue;
            };
            let primary = &self.servers[link.to];
            if replica.state == State::Down || !link.queue.is_empty() {
                continue;
            }
            assert_eq!(replica.history.id, primary.history.id);
            assert_eq!(replica.history.offset, primary.history.offset);
            let (its, theirs) = (replica.node.snapshot(), primary.node.snapshot());
            assert_eq!(its.locks, theirs.locks, "a replica has diverged");
        }
    }
}
