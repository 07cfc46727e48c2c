//! The counters and times of the last minute.
//!
//! Nothing is recorded for them: see [`super::window`]. The server's own round closes the slices,
//! ten times a second, so a slice ends late by a tenth of a second at most while the server is not
//! busy with one command. INFO closes it as well.
//!
//! The list of numbers is that of the counters below, then the buckets of the waits, then those of
//! the holds. The last reading of them takes 70 KB. A closed slice takes 8 bytes for each bucket
//! that has grown in it: a busy server takes some 20 KB for all of them.

use std::cell::RefCell;

use super::counters;
use super::times::{self, Summary, Times, BUCKETS};
use super::window::Window;
use redis_lock_core::engine::Count;

/// The counters that have a window, with the beginning of their names in INFO.
const COUNTERS: [(&str, Count); 9] = [
    ("acquired", Count::Acquired),
    ("refused", Count::Refused),
    ("waited", Count::Waited),
    ("handed_over", Count::HandedOver),
    ("timed_out", Count::TimedOut),
    ("released", Count::Released),
    ("expired", Count::Expired),
    ("forced", Count::Forced),
    ("evicted", Count::Evicted),
];

/// What has happened lately.
#[derive(Default)]
pub(in crate::server) struct Recent {
    window: RefCell<Window>,
}

/// The window as INFO shows it.
pub(in crate::server) struct Growth {
    values: Vec<u64>,
}

impl Recent {
    /// Closes the running slice if it is over, at `now_us` of the monotonic clock.
    pub(in crate::server) fn advance(&self, now_us: u64) {
        // A report of a crash may be asked for in the middle of it.
        if let Ok(mut window) = self.window.try_borrow_mut() {
            if window.must_advance(now_us) {
                window.advance(now_us, &values());
            }
        }
    }

    /// What has happened in the minute that ends at `now_us`.
    pub(in crate::server) fn growth_at(&self, now_us: u64) -> Option<Growth> {
        let window = self.window.try_borrow().ok()?;
        let values = window.growth_at(now_us, &values());
        Some(Growth { values })
    }

    /// Begins anew, after the counters and the times.
    pub(in crate::server) fn reset(&self) {
        if let Ok(mut window) = self.window.try_borrow_mut() {
            window.reset();
        }
    }
}

impl Growth {
    /// By how much the counters have grown.
    pub(in crate::server) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTERS
            .iter()
            .zip(&self.values)
            .map(|((name, _), growth)| (*name, *growth))
    }

    /// The summary of the waits or holds.
    pub(in crate::server) fn times(&self, of: Times) -> Option<Summary> {
        let skipped = match of {
            Times::Waits => 0,
            Times::Holds => BUCKETS,
        };
        let start = COUNTERS.len().saturating_add(skipped);
        let counts = self.values.iter().copied().skip(start).take(BUCKETS);
        times::summary(counts)
    }
}

/// All numbers that have a window.
fn values() -> Vec<u64> {
    let counters = COUNTERS.iter().map(|(_, of)| counters::value(*of));
    counters
        .chain(times::counts(Times::Waits))
        .chain(times::counts(Times::Holds))
        .collect()
}
