//! A planned hand-over: what the primary of a replica says of its guard, and what of that remains
//! after the promotion of the replica.

use super::settings::{Rule, Settings, CLOCKS_APART_MS};
use crate::command::guard::Beat;
use crate::lock::Now;

/// Members with the instant at which each followed the primary before at the latest, or earlier.
pub(super) type Before = Vec<(Box<[u8]>, u64)>;

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

/// What is known. Its instants are on a clock that goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub(super) struct HandOver {
    /// What the primary has said last, and when.
    theirs: Option<(Beat, u64)>,
    /// How far the clock of this server was ahead of the primary's, at most, when each of the last
    /// beats came.
    ahead_us: [Option<u64>; BEATS],
    /// Since when this server has followed the primary.
    linked_us: Option<u64>,
    /// Who else has followed it for long.
    followers: Before,
    promoted_us: Option<u64>,
    /// When the guard of the primary before ends, if it has said so.
    rest_us: Option<u64>,
}

impl HandOver {
    /// A link to a primary, which has said nothing yet.
    pub(super) fn of_link(at_us: u64) -> Self {
        Self {
            linked_us: Some(at_us),
            ..Self::default()
        }
    }

    /// The primary has said something.
    pub(super) fn hear(&mut self, beat: Beat, at_us: u64, now: Now) {
        let late_us = now.us().saturating_sub(beat.clock_us);
        self.ahead_us.rotate_left(1);
        if let Some(last) = self.ahead_us.last_mut() {
            *last = Some(late_us);
        }
        // The clock of the primary may be ahead, so what it says may be older than it seems.
        let most_late_us = late_us.saturating_add(CLOCKS_APART_MS * 1_000);
        let followed_us = |ago_ms: u64| {
            let ago_us = ago_ms.saturating_mul(1_000).saturating_add(most_late_us);
            at_us.saturating_sub(ago_us)
        };
        let followers = beat.followers.iter();
        self.followers = followers
            .map(|one| (one.name.clone(), followed_us(one.ago_ms)))
            .collect();
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

    /// This server is promoted. A majority must have followed it for `wait_us`.
    pub(super) fn is_promoted(&mut self, boot_us: u64, wait_us: u64, settings: &Settings) {
        let before = std::mem::take(self);
        let ahead_us = before.ahead_us.into_iter().flatten().min();
        let agrees = |us: u64| us <= MOST_AHEAD_US || !settings.has(Rule::Clocks);
        let theirs = before.theirs.filter(|(_, at_us)| {
            let is_last = boot_us.saturating_sub(*at_us) <= LAST_BEAT_US;
            is_last && ahead_us.is_some_and(agrees)
        });
        let is_long = |us: u64| boot_us.saturating_sub(us) >= wait_us;
        let is_old = before.linked_us.is_some_and(is_long) || !settings.has(Rule::LongLink);
        *self = Self {
            promoted_us: Some(boot_us),
            followers: if is_old { before.followers } else { Vec::new() },
            rest_us: theirs.and_then(|(beat, at_us)| {
                let left_us = beat.left_ms?.saturating_mul(1_000);
                Some(at_us.saturating_add(left_us))
            }),
            ..Self::default()
        };
    }

    /// When the guard ends, now that the primary before has come back. `None` where that changes
    /// nothing.
    pub(super) fn rest_us(&self, at_us: u64, settings: &Settings) -> Option<u64> {
        let since_us = at_us.saturating_sub(self.promoted_us?);
        let rest_us = self.rest_us.filter(|_| since_us <= SOON_US)?;
        Some(if settings.has(Rule::Rest) { rest_us } else { 0 })
    }

    /// Who else followed the primary before for long.
    pub(super) fn take_followers(&mut self) -> Before {
        std::mem::take(&mut self.followers)
    }
}
