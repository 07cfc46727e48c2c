//! The statistics in `INFO lock`: events ([`counters`]), the locks that are held now ([`held`]),
//! how long clients wait and hold ([`times`]), and both of late ([`recent`]).
//!
//! # Rules
//!
//! - The counters count the requests of clients on this server. Effects that come from a primary or
//!   from an append-only file only change the gauges, because they are applied without `commit`.
//! - The main thread counts by a plain load and a plain store. An atomic read-modify-write would
//!   show in a benchmark, and no other thread counts. Other threads only free values; [`held`]
//!   handles that.
//! - LOCK.RESETSTAT resets counters, times and the window ([`reset`]). The module does not notice
//!   CONFIG RESETSTAT. The module API has no event for it, and a command filter would make every
//!   command of the server slower.

pub(in crate::server) mod counters;
pub(in crate::server) mod held;
pub(in crate::server) mod recent;
pub(in crate::server) mod removals;
pub(in crate::server) mod times;
pub(in crate::server) mod window;

/// Resets counters, times and the window. The gauges stay as they are.
pub(in crate::server) fn reset(recent: &recent::Recent) {
    counters::reset();
    times::reset();
    recent.reset();
}

#[cfg(test)]
mod tests {
    use super::recent::Recent;
    use super::*;
    use redis_lock_core::engine::Count;

    #[test]
    fn a_reset_empties_the_window() {
        let recent = Recent::default();
        let evicted = |now_us| {
            let growth = recent.growth_at(now_us).unwrap();
            let mut counters = growth.counters();
            counters.find(|(name, _)| *name == "evicted").unwrap().1
        };
        // One in a slice that is closed, and one in the running slice.
        counters::add(Count::Evicted, 1);
        recent.advance(10_000_000);
        counters::add(Count::Evicted, 1);
        assert_eq!(evicted(11_000_000), 2);
        reset(&recent);
        assert_eq!(evicted(12_000_000), 0);
        // What comes next counts again.
        counters::add(Count::Evicted, 1);
        assert_eq!(evicted(13_000_000), 1);
    }
}
