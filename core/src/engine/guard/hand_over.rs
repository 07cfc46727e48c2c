//! A planned failover: what the primary of a replica says of its guard, and what of that remains
//! after the promotion of the replica.

use super::settings::{Scope, Settings};
use crate::command::guard::Beat;
use crate::lock::Now;

/// How soon after a promotion the old primary must have come back, in microseconds. Its process
/// must not be able to crash and to start again in that time.
const SOON_US: u64 = 5_000_000;

/// How old the last beat may be at the promotion, in microseconds. A primary that hands over pauses
/// writes for less. One that was cut off may have granted since.
const LAST_BEAT_US: u64 = 1_500_000;

/// How far the clock of this server may be ahead of the old primary's, in microseconds. Clients
/// count leases less by that, and holds end here by this clock.
const MOST_AHEAD_US: u64 = 2_000;

/// How many beats say how far the clocks differ. Each says too much, by the time it was under way.
const BEATS: usize = 4;

/// Groups of more members have no majority in the old and the new primary.
const PAIR_DECIDES: usize = 3;

/// What is known. Its instants are on a clock that goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub(super) struct HandOver {
    /// What the primary has said last, and when.
    theirs: Option<(Beat, u64)>,
    /// How far the clock of this server was ahead of the primary's, at most, when each of the last
    /// beats came.
    ahead_us: [Option<u64>; BEATS],
    promoted_us: Option<u64>,
    /// When the doubts of the primary before end, if it has said so.
    rest_us: Option<u64>,
}

impl HandOver {
    /// The primary has said something.
    pub(super) fn hear(&mut self, beat: Beat, at_us: u64, now: Now) {
        self.ahead_us.rotate_left(1);
        if let Some(last) = self.ahead_us.last_mut() {
            *last = Some(now.us().saturating_sub(beat.clock_us));
        }
        self.theirs = Some((beat, at_us));
    }

    /// How long a guard lasts after a promotion by what the primary has said, in milliseconds.
    pub(super) fn wait_ms(&self) -> u64 {
        let theirs = self.theirs.as_ref();
        theirs.map_or(0, |(beat, _)| beat.wait_ms)
    }

    /// How long the longest lease of the primary may last, in milliseconds.
    pub(super) fn longest_ms(&self) -> u64 {
        let theirs = self.theirs.as_ref();
        theirs.map_or(0, |(beat, _)| beat.longest_ms)
    }

    /// This server is promoted.
    pub(super) fn is_promoted(&mut self, boot_us: u64, settings: &Settings) {
        let before = std::mem::take(self);
        let ahead_us = before.ahead_us.into_iter().flatten().min();
        let most_us = MOST_AHEAD_US;
        #[cfg(any(test, feature = "fault-injection"))]
        let most_us = settings.without_clocks(most_us);
        let is_pair = settings.members <= PAIR_DECIDES || settings.scope != Scope::Quorum;
        let theirs = before.theirs.filter(|(_, at_us)| {
            let is_last = boot_us.saturating_sub(*at_us) <= LAST_BEAT_US;
            is_pair && is_last && ahead_us.is_some_and(|us| us <= most_us)
        });
        self.promoted_us = Some(boot_us);
        self.rest_us = theirs.and_then(|(beat, at_us)| {
            let left_us = beat.left_ms?.saturating_mul(1_000);
            Some(at_us.saturating_add(left_us))
        });
    }

    /// When the guard ends, now that the primary before has come back. `None` where that changes
    /// nothing.
    pub(super) fn rest_us(&self, at_us: u64) -> Option<u64> {
        let since_us = at_us.saturating_sub(self.promoted_us?);
        self.rest_us.filter(|_| since_us <= SOON_US)
    }
}
