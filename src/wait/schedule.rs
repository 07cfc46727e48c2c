//! What is due when: keys to look at by the wall clock, waiters that time out by the monotonic
//! clock.

use std::collections::BTreeSet;

use super::key_ref::KeyRef;
use super::place::PlaceId;
use crate::lock::Now;
use crate::planted::planted;

/// When there is something to do without a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// There is something to do now.
    pub at_once: bool,
    /// When the first key is to be looked at, in wall-clock milliseconds; `None` is never.
    pub wakes_at_ms: Option<u64>,
    /// When the first request times out or the first grace is over, in microseconds of the
    /// monotonic clock; `None` is never.
    pub times_out_at_us: Option<u64>,
}

impl Due {
    /// In how many microseconds: 0 is at once, `None` is never.
    pub fn idle_us(&self, now: Now, monotonic_us: u64) -> Option<u64> {
        if self.at_once {
            return Some(0);
        }
        let wake = self.wakes_at_ms.map(|at_ms| {
            let at_us = at_ms.saturating_mul(1_000);
            at_us.saturating_sub(now.us())
        });
        let timeout = self.times_out_at_us;
        let timeout = timeout.map(|at_us| at_us.saturating_sub(monotonic_us));
        wake.into_iter().chain(timeout).min()
    }

    /// Whether a timer that is set for this is early enough for `later`.
    pub fn covers(&self, later: &Self) -> bool {
        let covers = |one: Option<u64>, other: Option<u64>| {
            other.is_none_or(|other| one.is_some_and(|one| one <= other))
        };
        self.at_once
            || (!later.at_once
                && covers(self.wakes_at_ms, later.wakes_at_ms)
                && covers(self.times_out_at_us, later.times_out_at_us))
    }
}

/// The two lists of what is to come.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Schedule {
    /// When the passing of time alone may make somebody next: at most one entry for a key, in
    /// wall-clock milliseconds.
    wakes: BTreeSet<(u64, KeyRef)>,
    /// One entry for each place, when its first request times out or its grace is over, unless that
    /// is never. In microseconds of the monotonic clock.
    timeouts: BTreeSet<(u64, PlaceId)>,
}

impl Schedule {
    /// Has a key looked at by another time than `before`.
    pub(super) fn set_wake(&mut self, key: &KeyRef, before: Option<u64>, at_ms: Option<u64>) {
        if before == at_ms {
            return;
        }
        if let Some(before) = before {
            self.wakes.remove(&(before, key.clone()));
        }
        if let Some(at_ms) = at_ms {
            self.wakes.insert((at_ms, key.clone()));
        }
    }

    /// Has a place looked at by another time than `before`.
    pub(super) fn set_timeout(&mut self, id: PlaceId, before: Option<u64>, at_us: Option<u64>) {
        if before == at_us || planted("timeouts-are-forgotten") {
            return;
        }
        if let Some(before) = before {
            self.timeouts.remove(&(before, id));
        }
        if let Some(at_us) = at_us {
            self.timeouts.insert((at_us, id));
        }
    }

    /// The first place at which a time is over.
    pub(super) fn timed_out(&self, now_us: u64) -> Option<PlaceId> {
        let first = self.timeouts.first();
        let due = first.filter(|(at_us, _)| *at_us <= now_us);
        due.map(|(_, id)| *id)
    }

    /// The first key that is to be looked at by now.
    pub(super) fn woken(&self, now: Now) -> Option<KeyRef> {
        let first = self.wakes.first();
        let due = first.filter(|(at_ms, _)| *at_ms <= now.ms());
        due.map(|(_, key)| key.clone())
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.wakes.len(), self.timeouts.len())
    }

    pub(super) fn due(&self, at_once: bool) -> Due {
        Due {
            at_once,
            wakes_at_ms: self.wakes.first().map(|(at_ms, _)| *at_ms),
            times_out_at_us: self.timeouts.first().map(|(at_us, _)| *at_us),
        }
    }
}
