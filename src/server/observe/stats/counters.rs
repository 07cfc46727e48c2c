//! The counters of [`Count`], for the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

use redis_lock_core::engine::Count;

/// Only the main thread writes them.
static COUNTERS: [AtomicU64; Count::ALL.len()] = [const { AtomicU64::new(0) }; Count::ALL.len()];

fn counter(of: Count) -> Option<&'static AtomicU64> {
    COUNTERS.get(of as usize)
}

/// Adds to a counter.
#[inline]
pub(in crate::server) fn add(of: Count, n: usize) {
    if let Some(counter) = counter(of) {
        let n = u64::try_from(n).unwrap_or_default();
        let sum = counter.load(Ordering::Relaxed).wrapping_add(n);
        counter.store(sum, Ordering::Relaxed);
    }
}

/// The value of a counter.
pub(in crate::server) fn value(of: Count) -> u64 {
    counter(of).map_or(0, |counter| counter.load(Ordering::Relaxed))
}

/// Sets all to 0.
pub(super) fn reset() {
    for counter in &COUNTERS {
        counter.store(0, Ordering::Relaxed);
    }
}
