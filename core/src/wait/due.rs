//! What is due when: keys to look at by the wall clock, waiters that time out by the monotonic
//! clock.

use crate::lock::Now;

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
