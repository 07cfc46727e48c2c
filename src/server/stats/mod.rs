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

use super::waiting::Entered;
use crate::command::{Error, Reply};
use crate::lock::{Effect, Hold, Now};

/// Begins counters and times anew. What is held, and who waits, is as it is.
pub(super) fn reset() {
    counters::ALL
        .iter()
        .for_each(|(_, counter)| counter.reset());
    times::reset();
}

/// An acquire was granted, at once. `had_it` says that its token held the lock before.
pub(super) fn acquired(had_it: bool) {
    counters::ACQUIRED.add_one();
    if had_it {
        counters::REACQUIRED.add_one();
    }
}

/// An acquire was granted after waiting.
pub(super) fn handed_over(waited_us: u64, had_it: bool) {
    acquired(had_it);
    counters::HANDED_OVER.add_one();
    times::waited(waited_us);
}

/// An owner has released its hold.
pub(super) fn released(hold: &Hold, now: Now) {
    counters::RELEASED.add_one();
    times::held(hold, now);
}

/// An acquire was not granted at once: its client waits, or is told so.
pub(super) fn not_granted(entered: &Result<Entered, Error>) {
    match entered {
        Ok(Entered::Yes) => counters::WAITED.add_one(),
        Ok(Entered::No) => counters::REFUSED.add_one(),
        Err(Error::KeyQueueFull | Error::ServerQueueFull) => counters::QUEUE_FULL.add_one(),
        Err(_) => {}
    }
}

/// An acquire could never be granted.
pub(super) fn not_possible(reply: Reply<'_>) {
    if reply == Reply::Error(Error::Deadlock) {
        counters::DEADLOCKS.add_one();
    }
}

/// How many holds a change has dropped beside what it was for, as they were over, when there were `before` and are `after` it. `had_it` says
/// whether the effect's token had one of them, which lived: an end is decided only for such a one.
pub(super) fn dropped(effect: &Effect<'_>, had_it: bool, before: usize, after: usize) -> usize {
    let expected = match effect {
        Effect::Hold { .. } if !had_it => before.saturating_add(1),
        Effect::Release { .. } => before.saturating_sub(1),
        Effect::Hold { .. } | Effect::Cap { .. } => before,
    };
    expected.saturating_sub(after)
}
