//! How long clients wait and hold, as histograms.
//!
//! - **Waits**: of grants to waiters, from the moment that the request was queued to the grant, by the monotonic clock. A grant at once is no wait and is not
//!   among them: there are `lock_acquired` - `lock_handed_over` of those. Nor is a wait that ended without a grant.
//! - **Holds**: of holds that were released by their owners, from the grant to the release, by the wall clock as all leases; renewals and conversions
//!   between belong to it. A hold that ended otherwise is not among them: when one expires it has lasted as long as its ttl said, which tells
//!   nothing of the work, and `lock_expired` counts it.
//!
//! # Size
//!
//! Two significant digits, from a microsecond to a week: a percentile is right to 1 %, and a histogram takes 34 KB for good, whatever comes.
//! A third digit would take 240 KB. What is longer than a week counts as a week.

use std::cell::RefCell;

use hdrhistogram::Histogram;

use crate::lock::{Hold, Now};

/// The longest time that is told apart: a week, in microseconds.
const LONGEST_US: u64 = 7 * 24 * 3600 * 1_000_000;

const SIGNIFICANT_DIGITS: u8 = 2;

/// Of what is looked at.
#[derive(Clone, Copy)]
pub(in super::super) enum Times {
    Waits,
    Holds,
}

/// What is told of one of them, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Summary {
    pub(in super::super) count: u64,
    pub(in super::super) p50: u64,
    pub(in super::super) p90: u64,
    pub(in super::super) p99: u64,
    pub(in super::super) p999: u64,
    pub(in super::super) max: u64,
}

thread_local! {
    /// None before [`prepare`], so that nothing is built on the way of a command.
    static WAITS: RefCell<Option<Histogram<u64>>> = const { RefCell::new(None) };
    static HOLDS: RefCell<Option<Histogram<u64>>> = const { RefCell::new(None) };
}

/// Makes the histograms.
pub(in super::super) fn prepare() {
    let empty = || Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS).ok();
    WAITS.set(empty());
    HOLDS.set(empty());
}

/// Notes for how long a request has waited until it was granted.
pub(super) fn waited(us: u64) {
    WAITS.with_borrow_mut(|waits| record(waits, us));
}

/// Notes that a hold is released.
pub(super) fn held(hold: &Hold, now: Now) {
    let us = now.us().saturating_sub(granted_us(hold));
    HOLDS.with_borrow_mut(|holds| record(holds, us));
}

fn record(times: &mut Option<Histogram<u64>>, us: u64) {
    if let Some(times) = times {
        // It refuses only what is beyond its bounds.
        times.record(us.min(LONGEST_US)).ok();
    }
}

/// When a hold was granted. It knows that to the millisecond; its fence, which follows the clock, knows it to the microsecond, but for the
/// second after a start or a promotion, in which fences are ahead of the clock.
const fn granted_us(hold: &Hold) -> u64 {
    let by_fence = hold.fence.get();
    if by_fence / 1_000 == hold.since_ms {
        by_fence
    } else {
        hold.since_ms.saturating_mul(1_000)
    }
}

/// What is known of waits or holds; `None` in the middle of a change.
pub(in super::super) fn summary(of: Times) -> Option<Summary> {
    let times = match of {
        Times::Waits => &WAITS,
        Times::Holds => &HOLDS,
    };
    times.with(|times| {
        let times = times.try_borrow().ok()?;
        let times = times.as_ref()?;
        let at = |quantile| times.value_at_quantile(quantile);
        Some(Summary {
            count: times.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: times.max(),
        })
    })
}

/// Begins anew.
pub(super) fn reset() {
    for times in [&WAITS, &HOLDS] {
        times.with_borrow_mut(|times| {
            if let Some(times) = times {
                times.reset();
            }
        });
    }
}
