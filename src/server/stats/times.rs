//! How long clients wait and hold, as histograms.
//!
//! - **Waits**: of grants to waiters, from the moment that the request was queued to the grant, by the monotonic clock. A grant at once is
//!   no wait and is not among them: there are `lock_acquired` - `lock_handed_over` of those. Nor is a wait that ended without a grant.
//! - **Holds**: of holds that were released by their owners, from the grant to the release, by the wall clock as all leases; renewals and
//!   conversions between belong to it. A hold that ended otherwise is not among them: when one expires it has lasted as long as its ttl
//!   said, which tells nothing of the work, and `lock_expired` counts it.
//!
//! # Size and cost
//!
//! Two significant digits, from a microsecond to two weeks: a percentile is right to 1 %, and each histogram takes 34 KB for good, whatever comes.
//! A third digit would take 240 KB. What is longer counts as two weeks.
//!
//! A release must not pay for what an operator may ask. So it only adds one to a bucket, which is a third of what the library's own
//! way costs; the library makes percentiles of the buckets, which are laid out as its own, when they are asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use crate::lock::{Hold, Now};

const SIGNIFICANT_DIGITS: u8 = 2;

/// Two digits need more than 100 steps between a power of two and the next: 128.
const STEP_BITS: u32 = 7;

/// Times of more bits are not told apart: 2^40 microseconds are two weeks.
const MAX_BITS: u32 = 40;
const LONGEST_US: u64 = (1 << MAX_BITS) - 1;

const BUCKETS: usize = bucket_of(LONGEST_US) + 1;

/// Of what is looked at.
#[derive(Clone, Copy)]
pub(in super::super) enum Times {
    Waits,
    Holds,
}

/// What is told of one of them, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Summary {
    pub(in super::super) count: u64,
    pub(in super::super) p50: u64,
    pub(in super::super) p90: u64,
    pub(in super::super) p99: u64,
    pub(in super::super) p999: u64,
    pub(in super::super) max: u64,
}

/// How often each length of time has come. Only the main thread writes it.
struct Buckets([AtomicU64; BUCKETS]);

static WAITS: Buckets = Buckets::new();
static HOLDS: Buckets = Buckets::new();

/// Notes for how long a request has waited until it was granted.
pub(in super::super) fn waited(us: u64) {
    WAITS.record(us);
}

/// Notes that a hold is released.
pub(in super::super) fn held(hold: &Hold, now: Now) {
    HOLDS.record(now.us().saturating_sub(granted_us(hold)));
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

/// What is known of waits or holds; `None` when the library refuses its own bounds, which it does not.
pub(in super::super) fn summary(of: Times) -> Option<Summary> {
    let buckets = match of {
        Times::Waits => &WAITS,
        Times::Holds => &HOLDS,
    };
    let times = buckets.histogram()?;
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

/// Begins anew.
pub(super) fn reset() {
    WAITS.reset();
    HOLDS.reset();
}

impl Buckets {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }

    fn record(&self, us: u64) {
        // There is a bucket for each: `bucket_of` does not go beyond that of the longest.
        if let Some(bucket) = self.0.get(bucket_of(us)) {
            let count = bucket.load(Ordering::Relaxed);
            bucket.store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn histogram(&self) -> Option<Histogram<u64>> {
        let mut times = Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS).ok()?;
        for (bucket, count) in self.0.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                times.record_n(lowest_of(bucket), count).ok()?;
            }
        }
        Some(times)
    }

    fn reset(&self) {
        self.0
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// The bucket of a time: its highest bit and the [`STEP_BITS`] that follow it. Shorter times have buckets of their own.
#[allow(clippy::arithmetic_side_effects)] // Shifts and sums of bits that are there: see the tests.
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
        let times = buckets.histogram().unwrap();
        for (quantile, us) in [(0.5, 500_000), (0.9, 900_000), (0.999, 999_000)] {
            let is = times.value_at_quantile(quantile);
            assert!(is.abs_diff(us) <= us / 100, "{is} for {us}");
        }
        assert_eq!(times.len(), 1000);
        buckets.reset();
        assert_eq!(buckets.histogram().unwrap().max(), 0);
    }
}
