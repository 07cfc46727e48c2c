//! Histograms of how long clients wait and how long they hold.
//!
//! - **Waits** of granted waiters: from the entry into the queue to the grant, by the monotonic
//!   clock. A grant at once is not a wait; there are `lock_acquired` - `lock_handed_over` of those.
//!   A wait that ended without a grant does not count.
//! - **Holds** that their owners released: from the grant to the release, by the wall clock, as all
//!   leases. Renewals and conversions in between belong to the hold. A hold that ended otherwise
//!   does not count. An expired hold lasted as long as its ttl, which says nothing about the work;
//!   `lock_expired` counts it.
//!
//! # Size and cost
//!
//! Two significant digits, from a microsecond to two weeks. A percentile is right to 1 %, and each
//! histogram always takes 34 KB. A third digit would take 240 KB. A longer time counts as two
//! weeks.
//!
//! A release must not pay for a query that an operator may make later. So it only adds one to a
//! bucket, at a third of the cost of the library's own method. The buckets have the layout of the
//! library, which computes the percentiles when they are asked for. Those of the last minute are
//! differences of the same buckets ([`super::window`]).

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use redis_lock_core::lock::{Hold, Now};

const SIGNIFICANT_DIGITS: u8 = 2;

/// Two digits need more than 100 steps between two powers of two: 128.
const STEP_BITS: u32 = 7;

/// Times of more bits are not distinguished: 2^40 microseconds are two weeks.
const MAX_BITS: u32 = 40;
const LONGEST_US: u64 = (1 << MAX_BITS) - 1;

pub(super) const BUCKETS: usize = bucket_of(LONGEST_US) + 1;

/// The histogram that is asked for.
#[derive(Clone, Copy)]
pub(in crate::server) enum Times {
    Waits,
    Holds,
}

/// The summary of a histogram, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Summary {
    pub(in crate::server) count: u64,
    pub(in crate::server) p50: u64,
    pub(in crate::server) p90: u64,
    pub(in crate::server) p99: u64,
    pub(in crate::server) p999: u64,
    pub(in crate::server) max: u64,
}

/// The number of times of each length. Only the main thread writes it.
struct Buckets([AtomicU64; BUCKETS]);

static WAITS: Buckets = Buckets::new();
static HOLDS: Buckets = Buckets::new();

/// Notes how long a request has waited until its grant.
pub(in crate::server) fn waited(us: u64) {
    WAITS.record(us);
}

/// Notes that a hold is released.
pub(in crate::server) fn held(hold: &Hold, now: Now) {
    HOLDS.record(now.us().saturating_sub(granted_us(hold)));
}

/// When a hold was granted. `since` has millisecond precision. The fence follows the clock and
/// has microseconds, except in the second after a start or a promotion, when fences are ahead of
/// the clock.
const fn granted_us(hold: &Hold) -> u64 {
    let by_fence = hold.fence.get();
    if by_fence / 1_000 == hold.since.ms() {
        by_fence
    } else {
        hold.since.ms().saturating_mul(1_000)
    }
}

/// The number of times in each bucket, since the start or the last reset. Each number only grows.
pub(in crate::server) fn counts(of: Times) -> impl Iterator<Item = u64> {
    let buckets = match of {
        Times::Waits => &WAITS,
        Times::Holds => &HOLDS,
    };
    buckets.0.iter().map(|count| count.load(Ordering::Relaxed))
}

/// The summary of the numbers of times in each bucket. `None` if the library refused the bounds,
/// which it never does.
pub(in crate::server) fn summary(counts: impl IntoIterator<Item = u64>) -> Option<Summary> {
    let times = histogram(counts)?;
    let at = |quantile| times.value_at_quantile(quantile);
    Some(Summary {
        count: times.len(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: times.max(),
    })
}

/// Resets both.
pub(super) fn reset() {
    WAITS.reset();
    HOLDS.reset();
}

impl Buckets {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }

    fn record(&self, us: u64) {
        // There is a bucket for each time: `bucket_of` never exceeds that of the longest.
        if let Some(bucket) = self.0.get(bucket_of(us)) {
            let count = bucket.load(Ordering::Relaxed);
            bucket.store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        self.0
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

fn histogram(counts: impl IntoIterator<Item = u64>) -> Option<Histogram<u64>> {
    let mut times = Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS).ok()?;
    for (bucket, count) in counts.into_iter().enumerate() {
        if count > 0 {
            times.record_n(lowest_of(bucket), count).ok()?;
        }
    }
    Some(times)
}

/// The bucket of a time: its highest bit and the [`STEP_BITS`] bits after it. Each time with fewer
/// bits has its own bucket.
#[allow(clippy::arithmetic_side_effects)] // These cannot overflow; the tests try all sizes.
const fn bucket_of(us: u64) -> usize {
    let us = if us > LONGEST_US { LONGEST_US } else { us };
    let bits = u64::BITS - (us | 1).leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    ((shift as usize) << STEP_BITS) + (us >> shift) as usize
}

/// The shortest time of a bucket.
#[allow(clippy::arithmetic_side_effects)] // As above.
const fn lowest_of(bucket: usize) -> u64 {
    let shift = (bucket >> STEP_BITS).saturating_sub(1);
    ((bucket - (shift << STEP_BITS)) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_are_the_librarys() {
        let times: Histogram<u64> =
            Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS).unwrap();
        let around = |us: u64| [us.saturating_sub(1), us, us + 1];
        let powers = (0..MAX_BITS).map(|bits| 1u64 << bits);
        let all = (0..5_000)
            .chain(powers.flat_map(|us| around(us).into_iter().chain(around(us / 3 * 4))));
        for us in all.chain([LONGEST_US]) {
            let us = us.min(LONGEST_US);
            let bucket = bucket_of(us);
            assert_eq!(lowest_of(bucket), times.lowest_equivalent(us), "{us}");
            assert_eq!(bucket_of(lowest_of(bucket)), bucket, "{us}");
            let next = times.next_non_equivalent(us);
            assert!(us > LONGEST_US / 2 || bucket_of(next) == bucket + 1, "{us}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        // 34 KB.
        assert_eq!(size_of::<Buckets>(), 34 * 1024);
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let buckets = Buckets::new();
        (1..=1000).for_each(|ms| buckets.record(ms * 1000));
        let counts = || buckets.0.iter().map(|count| count.load(Ordering::Relaxed));
        let times = histogram(counts()).unwrap();
        for (quantile, us) in [(0.5, 500_000), (0.9, 900_000), (0.999, 999_000)] {
            let is = times.value_at_quantile(quantile);
            assert!(is.abs_diff(us) <= us / 100, "{is} for {us}");
        }
        assert_eq!(times.len(), 1000);
        buckets.reset();
        assert_eq!(histogram(counts()).unwrap().max(), 0);
    }
}
