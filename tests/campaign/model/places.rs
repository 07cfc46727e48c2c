//! The places that a look shows: whether each may still be there, and whether the first one waits for a
//! reason.

use std::collections::BTreeSet;

use super::{Lock, Model, LATE_US};
use crate::record::{Held, Look, Mode, Place, Shown};

impl<'r, 'l> Model<'r, 'l> {
    /// What is wrong with the places of a look alone.
    pub(super) fn check_places(
        &mut self,
        at: usize,
        key: &'l str,
        shown: &'r Shown<'l>,
        look: &Look<'l>,
    ) {
        for place in &shown.places {
            let whose = (key, place.token);
            let lock = self.keys[0].get(key);
            if lock.is_some_and(|lock| lock.own(place.token, look.server_us / 1_000).is_some()) {
                self.upgraded.insert(whose);
            }
            if place.is_absent() {
                self.check_absent(key, place);
                continue;
            }
            self.absent.remove(&whose);
            self.listened.insert(whose, look.server_us);
            let due_us = self.waits_until_us(at, key, place.token);
            if self.worked() > self.work_at(due_us) + LATE_US && look.server_us > due_us {
                let text = format!("{} waits for {key} although its time is over", place.token);
                self.refuse("late", text);
            }
        }
        let stays = |token: &str| shown.places.iter().any(|one| one.token == token);
        self.upgraded
            .retain(|(of, token)| *of != key || stays(token));
        let is_there = |token: &str| {
            shown
                .places
                .iter()
                .any(|one| one.token == token && one.is_absent())
        };
        self.absent
            .retain(|(of, token), _| *of != key || is_there(token));
        self.check_head(key, shown, look);
    }

    fn check_absent(&mut self, key: &'l str, place: &Place<'l>) {
        self.counts.absent += 1;
        let worked = self.worked();
        let asked = self.record.acquires_of(key, place.token);
        let Some(keep_ms) = asked.filter_map(|one| one.keep_ms).max() else {
            let text = format!("{} is absent at {key} without KEEP", place.token);
            return self.refuse("shown queue", text);
        };
        let since = *self.absent.entry((key, place.token)).or_insert(worked);
        if worked > since + keep_ms * 1_000 + LATE_US {
            let text = format!(
                "{} is absent at {key} for {} ms",
                place.token,
                (worked - since) / 1_000
            );
            self.refuse("kept too long", text);
        }
    }

    /// The server's time at which the requests of a token for a key are over.
    pub(super) fn waits_until_us(&self, at: usize, key: &str, token: &str) -> u64 {
        let asked = self.record.acquires_of(key, token);
        let came =
            asked.filter_map(|one| Some((one, one.arrived.filter(|arrived| *arrived < at)?)));
        let ends = came.map(|(one, arrived)| {
            let until_us = match one.wait_ms {
                Some(0) => u64::MAX,
                wait_ms => self.next_ms[arrived].saturating_add(wait_ms.unwrap_or(0) + 1) * 1_000,
            };
            // By a channel it stands until then, whether or not its client is there.
            match one.ended_at {
                ended if ended <= at && !one.by_channel => {
                    until_us.min(self.next_ms[ended] * 1_000)
                }
                _ => until_us,
            }
        });
        ends.max().unwrap_or(u64::MAX)
    }

    /// The first that listens does not wait without a reason.
    fn check_head(&mut self, key: &'l str, shown: &'r Shown<'l>, look: &Look<'l>) {
        let Some(rank) = shown.places.iter().position(|place| !place.is_absent()) else {
            self.stuck.remove(key);
            return;
        };
        let (kept, head) = (&shown.places[..rank], &shown.places[rank]);
        let now_ms = look.server_us / 1_000;
        let several = self.record.acquires_of(key, head.token);
        let several: Vec<_> = several.filter(|one| one.is_for_several()).collect();
        let enters = match several.last() {
            _ if kept.iter().any(|one| self.is_of_several(key, one.token)) => false,
            Some(request) => request.keys.iter().all(|(other, mode)| {
                let first = look.keys.get(other).and_then(|shown| shown.places.first());
                let lock = self.keys[0].get(other).cloned().unwrap_or_default();
                let is_head = first.is_some_and(|first| first.token == head.token);
                is_head && lock.admits(head.token, *mode, now_ms)
            }),
            None => {
                let lock = self.keys[0].get(key).cloned().unwrap_or_default();
                admits_beside(&lock, kept, head, now_ms)
            }
        };
        if !enters {
            self.stuck.remove(key);
            return;
        }
        let worked = self.worked();
        let since = match self.stuck.get(key) {
            Some((token, since)) if *token == head.token => *since,
            _ => worked,
        };
        self.stuck.insert(key, (head.token, since));
        if worked > since + LATE_US {
            let text = format!("{} could have {key}, and waits", head.token);
            self.refuse("idle", text);
        }
    }
}

/// Whether a hold fits beside others, and absent places that count as holders.
pub(super) fn fits<'t>(others: impl Iterator<Item = (&'t str, Mode)>, held: Held<'_>) -> bool {
    let mut tokens = BTreeSet::from([held.token]);
    let mut least = held.mode;
    for (token, mode) in others.filter(|(token, _)| *token != held.token) {
        tokens.insert(token);
        least = least.min(mode);
    }
    tokens.len() <= least
}

/// Whether the first that listens enters: an upgrade is decided by other rules beside absent places.
fn admits_beside(lock: &Lock<'_>, kept: &[Place<'_>], head: &Place<'_>, now_ms: u64) -> bool {
    let holds = |place: &Place<'_>| lock.own(place.token, now_ms).is_some();
    if kept.is_empty() {
        return lock.admits(head.token, head.mode, now_ms);
    }
    if holds(head) || kept.iter().any(holds) {
        return false;
    }
    let others = lock.live(now_ms).map(|held| (held.token, held.mode));
    let kept = kept.iter().map(|place| (place.token, place.mode));
    let held = Held {
        token: head.token,
        mode: head.mode,
        fence: 0,
        deadline_ms: 0,
        since_ms: 0,
    };
    fits(others.chain(kept), held)
}
