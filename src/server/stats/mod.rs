//! What `INFO lock` tells an operator: what has happened ([`counters`]), what is held now ([`held`]) and how long it took ([`times`]).
//!
//! # Rules
//!
//! - What is counted is what clients did here. The effects that come from a primary or out of an append-only file change what is held,
//!   and nothing else: they are applied without passing the places that count.
//! - The main thread counts by a plain load and a plain store. A read-modify-write of the processor's would show in a benchmark, and
//!   nobody else counts; only values are freed by other threads, and [`held`] sees to that.
//! - LOCK.RESETSTAT begins counters and times anew ([`reset`]). The module API does not tell of CONFIG RESETSTAT: it is no event, and a
//!   command filter, which would see it, costs every command of the server.

pub(super) mod counters;
pub(super) mod held;
pub(super) mod removals;
pub(super) mod times;

use crate::command::{Error, Reply};

/// Begins counters and times anew. What is held, and who waits, is as it is.
pub(super) fn reset() {
    counters::ALL
        .iter()
        .for_each(|(_, counter)| counter.reset());
    times::reset();
}

/// An acquire could never be granted.
pub(super) fn not_possible(reply: Reply<'_>) {
    if reply == Reply::Error(Error::Deadlock) {
        counters::DEADLOCKS.add_one();
    }
}
