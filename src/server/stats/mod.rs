//! The statistics in `INFO lock`: events ([`counters`]), the locks that are held now ([`held`]),
//! and how long clients wait and hold ([`times`]).
//!
//! # Rules
//!
//! - The counters count the requests of clients on this server. Effects that come from a primary or
//!   from an append-only file only change the gauges, because they are applied without `commit`.
//! - The main thread counts by a plain load and a plain store. An atomic read-modify-write would
//!   show in a benchmark, and no other thread counts. Other threads only free values; [`held`]
//!   handles that.
//! - LOCK.RESETSTAT resets counters and times ([`reset`]). The module does not notice CONFIG
//!   RESETSTAT. The module API has no event for it, and a command filter would make every command
//!   of the server slower.

pub(super) mod counters;
pub(super) mod held;
pub(super) mod removals;
pub(super) mod times;

use crate::command::{Error, Reply};

/// Resets counters and times. The gauges stay as they are.
pub(super) fn reset() {
    counters::ALL
        .iter()
        .for_each(|(_, counter)| counter.reset());
    times::reset();
}

/// Counts an acquire that could never be granted.
pub(super) fn not_possible(reply: Reply<'_>) {
    if reply == Reply::Error(Error::Deadlock) {
        counters::DEADLOCKS.add_one();
    }
}
